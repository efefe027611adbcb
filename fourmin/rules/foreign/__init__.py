"""How the rules judge other benchmarks' results: a judge for each rule that can."""
