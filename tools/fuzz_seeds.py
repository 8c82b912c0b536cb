"""Write small JPEGs of every kind to a folder, for csrc/fuzz.cpp to mutate; see `make asan`.

PYTHONPATH=tests/helpers python tools/fuzz_seeds.py FOLDER
"""

import re
import sys
from pathlib import Path

import jpegs  # in tests/helpers/
from coded_jpegs import coded

from fastdata import native
from fastdata.images.limits import JpegLimits

KINDS = (
    *("4:4:4 baseline", "4:2:0 baseline", "4:2:2 baseline", "4:4:0 baseline", "4:1:1 baseline"),
    *("4:4:4 progressive", "4:2:0 progressive", "4:2:0 optimised", "4:4:4 restart 1"),
    *("4:2:0 restart 5", "rgb", "gray", "gray progressive", "gray restart", "cmyk", "cmyk 4:2:0"),
    *("ycck", "ycck progressive", "eleven blocks"),
)
FACTORS = (
    *([(4, 2), (1, 1), (1, 1)], [(1, 2), (2, 1), (2, 2)], [(3, 1), (1, 1), (1, 1)]),
    *([(1, 1), (2, 2), (2, 2)], [(2, 2)]),
)
ODD = ("4:2:0 restart 5", "4:2:0 progressive", "gray")
TRANSCODED = ("4:4:4 baseline", "4:2:0 progressive", "gray")


def main(folder: Path) -> None:
    """Write the seeds, with restart runs as well where the native core is there."""
    seeds = {kind: jpegs.MAKERS[kind](52, 37) for kind in KINDS}
    seeds["arithmetic"] = jpegs.ARITHMETIC
    seeds["unfinished"] = jpegs.unfinished(seeds["4:2:0 progressive"], 5)
    seeds["16-bit tables"] = jpegs.pillow(jpegs.scene(52, 37), qtables=[[400] * 64, [900] * 64])
    for factors in FACTORS:
        seeds[f"factors {factors}"] = coded(19, 17, factors, interval=3)
    for kind in ODD:
        seeds |= {f"{kind} {oddity}": data for oddity, data in jpegs.odd(seeds[kind])}
    for transform in (0, 2, 3):
        seeds[f"adobe {transform}"] = jpegs.adobe(seeds["4:2:0 baseline"], transform)
        seeds[f"cmyk adobe {transform}"] = jpegs.adobe(seeds["cmyk"], transform)
    seeds["standard tables"] = jpegs.without_huffman_tables(seeds["4:2:0 restart 5"])
    core = native.load()
    for kind in TRANSCODED if core is not None else ():
        seeds[f"{kind} in runs"], *_ = core.transcode_jpeg(seeds[kind], 8, JpegLimits())
    folder.mkdir(parents=True, exist_ok=True)
    for kind, data in seeds.items():
        (folder / f"{re.sub('[^a-z0-9]+', '-', kind.replace(':', ''))}.jpg").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
