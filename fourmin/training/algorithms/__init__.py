"""Ways to train other than synchronous: servers, portions, pipelines. Open division.

Where workers do not wait for each other, each rank of torchrun is a host. It forks one worker, a
process that computes gradients, and waits for it; hosts evaluate, log and keep checkpoints together
as in any run. Rank 0 has the counter that hands out each epoch's batches; the first `servers` hosts
hold the weights. Workers ask hosts by torch.distributed.rpc. A worker that is killed is missed by
nobody: its host says so, and what it had in hand is handed out again. A host that dies ends all,
and the run goes on by a restart.
"""
