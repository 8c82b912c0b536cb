#include "jpeg/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fastdata {
namespace {

using Block16 = std::array<int16_t, 64>;

// What 16-bit vector instructions do with results that do not fit.
inline int16_t wrap16(int value) { return static_cast<int16_t>(static_cast<uint16_t>(value)); }

inline int16_t saturate16(int value) {
    return static_cast<int16_t>(std::clamp(value, -32768, 32767));
}

inline uint8_t saturate8(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// The part of a sum of products that is above the point. After the second pass it always fits.
template <int kShift>
inline int16_t descale(int sum) {
    const int value = sum >> kShift;
    return kShift < 16 ? saturate16(value) : static_cast<int16_t>(value);
}

// Transforms all columns. Sums of two inputs wrap at 16 bits, so no sum of products exceeds 32 bits
// whatever the inputs are: the magnitudes of an output's factors sum to 64570 or less, and 32768
// times that leaves room for the half.
template <int kShift>
inline void transform_columns(const Block16 &in, Block16 &out) {
    constexpr int kHalf = 1 << (kShift - 1);
    for (int i = 0; i < 8; ++i) {
        const int16_t in0 = in[i], in1 = in[8 + i], in2 = in[16 + i], in3 = in[24 + i];
        const int16_t in4 = in[32 + i], in5 = in[40 + i], in6 = in[48 + i], in7 = in[56 + i];

        const int sum = wrap16(in0 + in4) * (1 << kFactorBits) + kHalf;
        const int difference = wrap16(in0 - in4) * (1 << kFactorBits) + kHalf;
        const int two = in2 * kF0541 + in6 * (kF0541 - kF1847);
        const int three = in2 * (kF0541 + kF0765) + in6 * kF0541;
        const int even0 = sum + three, even3 = sum - three;
        const int even1 = difference + two, even2 = difference - two;

        const int16_t in37 = wrap16(in3 + in7), in15 = wrap16(in1 + in5);
        const int z3 = in37 * (kF1175 - kF1961) + in15 * kF1175;
        const int z4 = in37 * kF1175 + in15 * (kF1175 - kF0390);
        const int odd3 = in7 * (kF0298 - kF0899) - in1 * kF0899 + z3;
        const int odd2 = in5 * (kF2053 - kF2562) - in3 * kF2562 + z4;
        const int odd1 = in3 * (kF3072 - kF2562) - in5 * kF2562 + z3;
        const int odd0 = in1 * (kF1501 - kF0899) - in7 * kF0899 + z4;

        out[i] = descale<kShift>(even0 + odd0);
        out[8 + i] = descale<kShift>(even1 + odd1);
        out[16 + i] = descale<kShift>(even2 + odd2);
        out[24 + i] = descale<kShift>(even3 + odd3);
        out[32 + i] = descale<kShift>(even3 - odd3);
        out[40 + i] = descale<kShift>(even2 - odd2);
        out[48 + i] = descale<kShift>(even1 - odd1);
        out[56 + i] = descale<kShift>(even0 - odd0);
    }
}

// GCC and Clang map these to NEON or SSE.
using Row16 = int16_t __attribute__((vector_size(16)));

#if defined(__clang__)
inline Row16 interleave_low(Row16 a, Row16 b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Row16 interleave_high(Row16 a, Row16 b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else  // before version 12, GCC has only this
inline Row16 interleave_low(Row16 a, Row16 b) {
    return __builtin_shuffle(a, b, Row16{0, 8, 1, 9, 2, 10, 3, 11});
}
inline Row16 interleave_high(Row16 a, Row16 b) {
    return __builtin_shuffle(a, b, Row16{4, 12, 5, 13, 6, 14, 7, 15});
}
#endif

// Transposes in three steps. Each interleaves the rows i and i + 4, which moves one bit of a
// value's row number to its column number, and one the other way.
inline void transpose(const Block16 &in, Block16 &out) {
    std::array<Row16, 8> a, b;
    std::memcpy(a.data(), in.data(), sizeof in);
    for (int step = 0; step < 3; ++step) {
        for (int i = 0; i < 4; ++i) {
            b[2 * i] = interleave_low(a[i], a[i + 4]);
            b[2 * i + 1] = interleave_high(a[i], a[i + 4]);
        }
        a = b;
    }
    std::memcpy(out.data(), a.data(), sizeof out);
}

void idct(const int16_t *block, const uint16_t *table, int coded, uint8_t *out, ptrdiff_t stride) {
    Block16 a, b;
    if (coded == 1) {
        const int value = wrap16(wrap16(block[0] * table[0]) * (1 << kPassBits));
        const uint8_t sample = saturate8(((value + 16) >> 5) + 128);
        for (int i = 0; i < 8; ++i, out += stride) std::memset(out, sample, 8);
        return;
    }
    for (int i = 0; i < 64; ++i) {
        a[i] = static_cast<int16_t>(
            static_cast<uint16_t>(static_cast<uint32_t>(block[i]) * table[i]));
    }
    // If only the first row has coefficients, libjpeg-turbo skips the first pass. Values that are
    // too large then wrap instead of saturating.
    int16_t below = 0;
    for (int i = 8; i < 64; ++i) below |= block[i];
    if (below) {
        transform_columns<kFactorBits - kPassBits>(a, b);
        transpose(b, a);
    } else {
        for (int i = 0; i < 8; ++i) {
            std::fill_n(b.begin() + i * 8, 8, wrap16(a[i] * (1 << kPassBits)));
        }
        a = b;
    }
    transform_columns<kFactorBits + kPassBits + 3>(a, b);
    transpose(b, a);
    std::array<uint8_t, 64> samples;
    for (int i = 0; i < 64; ++i) samples[i] = saturate8(a[i] + 128);
    for (int i = 0; i < 8; ++i, out += stride) std::memcpy(out, samples.data() + i * 8, 8);
}

void upsample_h2(const uint8_t *in, int count, uint8_t *out) {
    for (int i = 0; i < count; ++i) {
        out[2 * i] = static_cast<uint8_t>((3 * in[i] + in[i - 1] + 1) >> 2);
        out[2 * i + 1] = static_cast<uint8_t>((3 * in[i] + in[i + 1] + 2) >> 2);
    }
}

void upsample_v2(const uint8_t *near, const uint8_t *far, int bias, int count, uint8_t *out) {
    for (int i = 0; i < count; ++i) {
        out[i] = static_cast<uint8_t>((3 * near[i] + far[i] + bias) >> 2);
    }
}

void upsample_h2v2(const uint8_t *near, const uint8_t *far, int count, uint8_t *out) {
    for (int i = 0; i < count; ++i) {
        const int before = 3 * near[i - 1] + far[i - 1];
        const int here = 3 * near[i] + far[i];
        const int after = 3 * near[i + 1] + far[i + 1];
        out[2 * i] = static_cast<uint8_t>((3 * here + before + 8) >> 4);
        out[2 * i + 1] = static_cast<uint8_t>((3 * here + after + 7) >> 4);
    }
}

// How many pixels are converted before they are interleaved: enough to vectorise, few enough for
// the nearest cache.
constexpr int kBlock = 64;

// Only the last loop, which interleaves, does not vectorise with every compiler.
inline void convert_pixels(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int size,
                           uint8_t *out) {
    constexpr int kHalf = 1 << 15;
    std::array<uint8_t, kBlock> red, green, blue;
    for (int i = 0; i < size; ++i) {
        // The factors are 1.402, 1.772, -0.34414 and -0.71414. Their whole parts are added apart,
        // so that 16 bits hold the rest.
        const int16_t b = static_cast<int16_t>(cb[i] - 128), r = static_cast<int16_t>(cr[i] - 128);
        red[i] = saturate8(y[i] + r + ((26345 * r + kHalf) >> 16));
        blue[i] = saturate8(y[i] + 2 * b + ((-14942 * b + kHalf) >> 16));
        green[i] = saturate8(y[i] - r + ((-22554 * b + 18734 * r + kHalf) >> 16));
    }
    for (int i = 0; i < size; ++i, out += 3) {
        out[0] = red[i];
        out[1] = green[i];
        out[2] = blue[i];
    }
}

void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int count, uint8_t *out) {
    int i = 0;
    for (; i + kBlock <= count; i += kBlock) {
        convert_pixels(y + i, cb + i, cr + i, kBlock, out + 3 * i);
    }
    convert_pixels(y + i, cb + i, cr + i, count - i, out + 3 * i);
}

constexpr JpegKernels kPortable{idct,          upsample_h2,
                                upsample_v2, upsample_h2v2, ycc_to_rgb};

}  // namespace

const JpegKernels &portable_jpeg_kernels() { return kPortable; }

const JpegKernels &best_jpeg_kernels() {
    static const JpegKernels *const avx2 = jpeg_kernels_avx2();
    return avx2 ? *avx2 : kPortable;
}

}  // namespace fastdata
