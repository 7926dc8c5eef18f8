package verify

// Compared is how many pairs of tensors were compared.
func (b *Bench) Compared() int { return b.compared }
