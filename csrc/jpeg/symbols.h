// Coding a sequential JPEG anew from its Huffman symbols, without going by its coefficients.
//
// Restart runs and new code tables change neither run, size nor value of an AC coefficient, and of
// a DC coefficient only what it is a difference to. So the symbols of the file are read once, and
// written with codes made for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/codec.h"
#include "jpeg/layout.h"

namespace fastdata {

enum class Recoded {
    kDone,
    kCoefficientRange,  // a difference or a coefficient has no code in baseline
    kNotThisWay,        // libjpeg has to read it: tables make no code, segments follow,
                        // or a block has too many coefficients
};

// Appends to `out` tables, frame and scan of the image, with runs of `interval` MCUs. Bytes that are
// left over where a run ends are left out, and `left_over` tells of them.
//
// `info` has read the header; the layout says `one_scan` and `sequential`. Quantisation tables must
// have 8 bits, and an MCU at most 10 blocks. Throws DecodeError where the scan is damaged.
Recoded recode_symbols(const jpeg_decompress_struct *info, const JpegLayout &layout,
                       const uint8_t *data, size_t size, int interval, std::vector<uint8_t> &out,
                       bool &left_over);

}  // namespace fastdata
