"""Ways to train other than synchronous: servers, portions, pipelines. Open division."""
