"""Every known bug of replicated logs as a patch of this one, kept outside the product: each must be caught.

`entry` says what a mutant is, the modules named after subjects hold the bugs, `catalogue` lists all of them by number (with
those that wait for a feature, and those that cannot change anything, and why), `engines` catches them. The command
`python -m tests.simulation.mutants` measures how soon, and finds the plans that `test_mutants` replays.
"""
