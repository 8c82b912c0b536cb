// The inner loops that turn JPEG coefficients into pixels, one set for each kind of processor.
// Every set computes what libjpeg-turbo computes with its vector instructions, bit for bit and for
// every input, the absurd values of damaged files included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastdata {

// Kernels may read and write so many bytes past the end of a row, so that their inputs and outputs
// must not be neighbours. Only `idct` writes no byte more than it has to, since the blocks beside
// it may be done already.
inline constexpr int kSampleSlack = 64;

struct JpegKernels {
    const char *name;

    // Dequantises a block, 64 coefficients in natural order, and transforms it into 8 rows of 8
    // samples, `stride` bytes apart. The coefficients from the `coded`-th on in zigzag order must
    // be zeros: 1 (the first alone) to 64.
    void (*idct)(const int16_t *block, const uint16_t *table, int coded, uint8_t *out,
                 ptrdiff_t stride);

    // The three "fancy" upsamplings weigh the nearer sample three times. At the edges of an image
    // the caller provides the neighbours, copies of the outermost samples.

    // Doubles the width: out[2 * i] and out[2 * i + 1] for i < count, from in[-1] to in[count].
    void (*upsample_h2)(const uint8_t *in, int count, uint8_t *out);

    // Doubles the height, a row at a time: out[i] = (3 * near[i] + far[i] + bias) >> 2 for
    // i < count; `bias` is 1 for the row above `near`, 2 for the one below.
    void (*upsample_v2)(const uint8_t *near, const uint8_t *far, int bias, int count, uint8_t *out);

    // Doubles both, a row at a time: as upsample_h2, from two rows.
    void (*upsample_h2v2)(const uint8_t *near, const uint8_t *far, int count, uint8_t *out);

    // `count` pixels of YCbCr, a row for each component, to interleaved RGB.
    void (*ycc_to_rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int count,
                       uint8_t *out);
};

// The fastest set that this processor runs.
const JpegKernels &best_jpeg_kernels();

// Portable C++, for every processor.
const JpegKernels &portable_jpeg_kernels();

// All sets that this processor runs, the fastest first; the last is portable C++.
const std::vector<const JpegKernels *> &jpeg_kernels();

}  // namespace fastdata
