"""What operations runs: containers, monitoring, replicas over many machines."""
