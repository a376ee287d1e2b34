#!/usr/bin/env python3
"""A tokenizer of byte pairs, learned from pairs of texts:  bpe.py PAIRS.jsonl SIZE OUT.json

Learns SIZE kinds of tokens from both texts of each line (Sennrich, Haddow & Birch 2016, ACL) by Hugging Face's tokenizers. Pieces begin at words, and
every byte is a token of its own, so that any text has tokens. A model of pairs needs three kinds more: `vocab: SIZE + 3`."""

import json
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def main():
    path, size, out = sys.argv[1:]
    with open(path, encoding="utf-8") as lines:
        texts = [text for line in lines for text in json.loads(line).values()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=int(size), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(out)
    lengths = [len(e.ids) for e in tokenizer.encode_batch(texts)]
    print(f"{out}: {tokenizer.get_vocab_size()} kinds of tokens, {sum(lengths) / len(lengths):.1f} in a text")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
