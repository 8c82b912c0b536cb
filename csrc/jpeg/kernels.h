// The inner loops that turn JPEG coefficients into pixels, one set for each kind of processor.
// Every set computes what libjpeg-turbo computes with its vector instructions on x86, bit for bit
// and for every input, the absurd values of damaged files included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Factors of the inverse transform of Loeffler, Ligtenberg and Moschytz as libjpeg has it, with
// kFactorBits after the point; kPassBits more are kept between the passes.
inline constexpr int kFactorBits = 13, kPassBits = 2;
inline constexpr int kF0298 = 2446, kF0390 = 3196, kF0541 = 4433, kF0765 = 6270, kF0899 = 7373;
inline constexpr int kF1175 = 9633, kF1501 = 12299, kF1847 = 15137, kF1961 = 16069;
inline constexpr int kF2053 = 16819, kF2562 = 20995, kF3072 = 25172;

// Kernels may read and write so many bytes past the end of a row: what lies behind an output must
// not be needed any more, or still be to come. Only `idct` writes no byte more than it has to, since
// the blocks beside it may be done already.
inline constexpr int kSampleSlack = 64;

struct JpegKernels {
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

}  // namespace fastdata
