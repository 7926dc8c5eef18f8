"""Networks of the zoo that torchvision lacks, by what they are for."""

from . import audio, image, other, text
