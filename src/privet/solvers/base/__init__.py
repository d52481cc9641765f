"""What solvers share: the problem, the release, step sizes and minimisation."""
