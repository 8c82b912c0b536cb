#include "resize/kernels.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <cstring>

#include "base/avx2.h"

namespace fastdata {
namespace {

// Both loops multiply with vpmaddwd, which takes 16-bit values and weights of two taps, side by
// side, and gives the 32-bit sum of both products.

// Two weights as one number, the first in the lower half.
inline int32_t pair_of(const int16_t *weights) {
    int32_t pair;
    std::memcpy(&pair, weights, sizeof pair);
    return pair;
}

// One block of 32 outputs. kPairs is the number of pairs of taps, or 0 to take it from `pairs`. For
// the common small filters it is a constant, so that weights and row addresses stay in registers.
template <int kPairs>
FASTDATA_AVX2 inline void vertical_block(const uint8_t *const *rows, const int16_t *weights,
                                         int pairs, int32_t half, __m128i shift, size_t from,
                                         int16_t *out) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i sum0 = _mm256_set1_epi32(half), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (int t = 0; t < (kPairs ? kPairs : pairs); ++t) {
        const __m256i pair = _mm256_set1_epi32(pair_of(weights + 2 * t));
        const __m256i a =
            load256(rows[2 * t] + from);
        const __m256i b =
            load256(rows[2 * t + 1] + from);
        const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), pair));
        sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), pair));
        sum2 = _mm256_add_epi32(sum2, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), pair));
        sum3 = _mm256_add_epi32(sum3, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), pair));
    }
    // Unpacking and packing work in each half of a register: values 0-7 and 16-23, 8-15 and 24-31.
    const __m256i even =
        _mm256_packs_epi32(_mm256_sra_epi32(sum0, shift), _mm256_sra_epi32(sum1, shift));
    const __m256i odd =
        _mm256_packs_epi32(_mm256_sra_epi32(sum2, shift), _mm256_sra_epi32(sum3, shift));
    store256(out + from, _mm256_permute2x128_si256(even, odd, 0x20));
    store256(out + from + 16, _mm256_permute2x128_si256(even, odd, 0x31));
}

template <int kPairs>
FASTDATA_AVX2 void vertical_row(const uint8_t *const *rows, const int16_t *weights, int pairs,
                                int32_t half, int shift_bits, size_t count, int16_t *out) {
    const __m128i shift = _mm_cvtsi32_si128(shift_bits);
    for (size_t from = 0; from + 32 <= count; from += 32) {
        vertical_block<kPairs>(rows, weights, pairs, half, shift, from, out);
    }
    // The last block overlaps outputs that are done, instead of reading past the end of the rows.
    if (count % 32) vertical_block<kPairs>(rows, weights, pairs, half, shift, count - 32, out);
}

FASTDATA_AVX2 void vertical(const uint8_t *const *rows, const int16_t *weights, int taps,
                            int32_t half, int shift, size_t count, int16_t *out) {
    if (count < 32) {
        return portable_resize_kernels().vertical(rows, weights, taps, half, shift, count, out);
    }
    switch (taps) {
        case 2: return vertical_row<1>(rows, weights, 1, half, shift, count, out);
        case 4: return vertical_row<2>(rows, weights, 2, half, shift, count, out);
        case 6: return vertical_row<3>(rows, weights, 3, half, shift, count, out);
        default: return vertical_row<0>(rows, weights, taps / 2, half, shift, count, out);
    }
}

// The horizontal pass makes 8 pixels at once. Of four registers, number q holds the sums of pixel q
// in its lower half and of pixel q + 4 in its upper half, each as red, green, blue and a value to
// ignore: packing them twice gives 8 pixels of 4 bytes in order.
constexpr int kGroup = 8;

// Weights in the order of use: group, q, pair of taps, then pixel q and pixel q + 4, the pair
// repeated for each channel. Pixels that pad the last group get zeros.
FASTDATA_AVX2 void spread_weights(FilterTaps &filter) {
    const int pairs = filter.taps / 2, groups = (filter.count + kGroup - 1) / kGroup;
    filter.spread.resize(static_cast<size_t>(groups) * kGroup * pairs * 8);
    filter.start.resize(static_cast<size_t>(groups) * kGroup, 0);
    for (int i = 0; i < groups * kGroup; ++i) {
        int16_t *to = filter.spread.data() +
                      (static_cast<size_t>(i / kGroup) * kGroup * pairs + i % 4 * 2 * pairs) * 8 +
                      i % kGroup / 4 * 8;
        for (int t = 0; t < pairs; ++t, to += 16) {
            const int32_t pair =
                i < filter.count
                    ? pair_of(&filter.weights[static_cast<size_t>(i) * filter.taps + 2 * t])
                    : 0;
            store128(to, _mm_set1_epi32(pair));
        }
    }
}

// The sums of two pixels, over 8 values from each of two places per pair of taps.
template <int kPairs>
FASTDATA_AVX2 inline __m256i two_pixels(const int16_t *first, const int16_t *second,
                                        const int16_t *weights, int pairs) {
    // Red of both taps side by side, then green, then blue; the rest is ignored.
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, 4, 5, 10, 11));
    __m256i sum = _mm256_setzero_si256();
    for (int t = 0; t < (kPairs ? kPairs : pairs); ++t) {
        const __m256i values = _mm256_inserti128_si256(
            _mm256_castsi128_si256(
                load128(first + 6 * t)),
            load128(second + 6 * t), 1);
        const __m256i pair =
            load256(weights + 16 * t);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_shuffle_epi8(values, order), pair));
    }
    return sum;
}

template <int kPairs>
FASTDATA_AVX2 void horizontal_row(const int16_t *row, const FilterTaps &filter, int pairs,
                                  uint8_t *out) {
    const __m128i shift = _mm_cvtsi32_si128(filter.precision + kRowBits);
    const __m256i drop_fourth = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m256i close_gap = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    const int32_t *start = filter.start.data();
    const int16_t *weights = filter.spread.data();
    for (int i = 0; i < filter.count; i += kGroup, start += kGroup, out += 3 * kGroup) {
        __m256i sums[4];
        for (int q = 0; q < 4; ++q, weights += 16 * pairs) {
            const int16_t *first = row + ptrdiff_t{3} * start[q];
            const int16_t *second = row + ptrdiff_t{3} * start[q + 4];
            const __m256i sum = two_pixels<kPairs>(first, second, weights, pairs);
            sums[q] = _mm256_sra_epi32(sum, shift);
        }
        const __m256i pixels = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                                   _mm256_packs_epi32(sums[2], sums[3]));
        const __m256i bytes =
            _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(pixels, drop_fourth), close_gap);
        const __m128i low = _mm256_castsi256_si128(bytes);
        const __m128i high = _mm256_extracti128_si256(bytes, 1);
        if (i + kGroup <= filter.count) {
            store128(out, low);
            _mm_storel_epi64(reinterpret_cast<__m128i *>(out + 16), high);
        } else {
            std::array<uint8_t, 32> last;
            store256(last.data(), bytes);
            std::memcpy(out, last.data(), static_cast<size_t>(filter.count - i) * 3);
        }
    }
}

FASTDATA_AVX2 void horizontal(const int16_t *row, const FilterTaps &filter, uint8_t *out) {
    switch (filter.taps) {
        case 2: return horizontal_row<1>(row, filter, 1, out);
        case 4: return horizontal_row<2>(row, filter, 2, out);
        case 6: return horizontal_row<3>(row, filter, 3, out);
        default: return horizontal_row<0>(row, filter, filter.taps / 2, out);
    }
}

constexpr ResizeKernels kAvx2{vertical, horizontal, spread_weights};

}  // namespace

const ResizeKernels *resize_kernels_avx2() {
    return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr;
}

}  // namespace fastdata

#else

namespace fastdata {

const ResizeKernels *resize_kernels_avx2() { return nullptr; }

}  // namespace fastdata

#endif
