// Re-encodes a sequential JPEG from its Huffman symbols, without going by way of its coefficients.
//
// Other restart runs and other code tables change neither run, size nor value of an AC coefficient,
// and of a DC coefficient only what it is a difference to. So the symbols of the file are read
// once, and written with codes made for them.
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
    kNotThisWay,        // libjpeg has to read it: its tables make no code, more segments follow,
                        // or a block has too many coefficients
};

// Appends the image's tables, frame and scan to `out`, with runs of `interval` MCUs. Bytes that are
// left over at the end of a run are dropped, and `left_over` is set if there are any.
//
// `info` must have read the header, and the layout be `one_scan` and `sequential`; quantisation
// tables must have 8 bits, and an MCU at most 10 blocks. Throws DecodeError if the scan is damaged.
Recoded recode_symbols(const jpeg_decompress_struct *info, const JpegLayout &layout,
                       const uint8_t *data, size_t size, int interval, std::vector<uint8_t> &out,
                       bool &left_over);

}  // namespace fastdata
