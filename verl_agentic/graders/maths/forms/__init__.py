"""Forms of mathematical answers: numbers, units, notation, structures."""
