"""Stock control: how much to order, when circumstances and their mix are uncertain."""
