#include "resize/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace fastdata {
namespace {

// Small enough for registers or the nearest cache, and long enough to vectorise.
constexpr size_t kBlock = 64;

void vertical(const uint8_t *const *rows, const int16_t *weights, int taps, int32_t half, int shift,
              size_t count, int16_t *out) {
    std::array<int32_t, kBlock> sums;
    for (size_t from = 0; from < count; from += kBlock) {
        const size_t size = std::min(kBlock, count - from);
        sums.fill(half);
        for (int t = 0; t < taps; t += 2) {
            const uint8_t *a = rows[t] + from, *b = rows[t + 1] + from;
            const int16_t of_a = weights[t], of_b = weights[t + 1];
            for (size_t i = 0; i < size; ++i) sums[i] += of_a * a[i] + of_b * b[i];
        }
        for (size_t i = 0; i < size; ++i) out[from + i] = static_cast<int16_t>(sums[i] >> shift);
    }
}

// One pixel and a value of the next, which is ignored. GCC and Clang map these to NEON or SSE.
using Pixel16 = int16_t __attribute__((vector_size(8)));
using Pixel32 = int32_t __attribute__((vector_size(16)));

void horizontal(const int16_t *row, const FilterTaps &filter, uint8_t *out) {
    const int16_t *weights = filter.weights.data();
    const int shift = filter.precision + kRowBits;
    for (int i = 0; i < filter.count; ++i, out += 3) {
        const int16_t *from = row + static_cast<ptrdiff_t>(filter.start[i]) * 3;
        Pixel32 sum = {};
        for (int t = 0; t < filter.taps; ++t, from += 3) {
            Pixel16 pixel;
            std::memcpy(&pixel, from, sizeof pixel);
            // Not by __builtin_convertvector: GCC 12 makes twice as many instructions of it on ARM.
            const Pixel32 wide{pixel[0], pixel[1], pixel[2], pixel[3]};
            sum += wide * static_cast<int32_t>(*weights++);
        }
        sum >>= shift;
        out[0] = static_cast<uint8_t>(sum[0]);
        out[1] = static_cast<uint8_t>(sum[1]);
        out[2] = static_cast<uint8_t>(sum[2]);
    }
}

constexpr ResizeKernels kPortable{vertical, horizontal, nullptr};

}  // namespace

const ResizeKernels &portable_resize_kernels() { return kPortable; }

const ResizeKernels &best_resize_kernels() {
    static const ResizeKernels *const avx2 = resize_kernels_avx2();
    return avx2 ? *avx2 : kPortable;
}

}  // namespace fastdata
