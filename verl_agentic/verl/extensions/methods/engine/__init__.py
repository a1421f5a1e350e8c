"""Parts of methods in the engines of workers: critics, teachers, references, learning rates."""
