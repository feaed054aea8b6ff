"""The mathematics: the problem, its bounds, its references and its solvers, each written once."""
