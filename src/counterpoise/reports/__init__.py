"""What people read: reports, explorers, pages and plots."""
