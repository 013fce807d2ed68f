"""What a training loop needs: rows in any order, changed, grouped, dealt out, resumed."""
