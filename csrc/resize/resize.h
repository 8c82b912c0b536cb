// Resampling of uint8 RGB images (rows of interleaved pixels) with an antialiasing triangle filter.
//
// The filter is the one of Pillow's `Image.resize(size, BILINEAR)` (src/libImaging/Resample.c), of
// torchvision's antialiased resize and of most training recipes: output pixel o looks at source
// position (o + 1/2) * source / scaled; a source pixel at distance d from it has weight
// max(0, 1 - d / support), support = max(1, source / scaled); weights are divided by their sum, and
// the filter ends at the edges of the source region.
//
// Here the weights are exact integer ratios, rounded to fixed point of 14 bits or more with the sum
// kept at exactly 1, so that a constant image stays constant. Rows are combined first, into one row
// of 16-bit values with 7 bits after the point; that row is filtered horizontally while it is in
// the nearest cache, and only the result is rounded to 8 bits. In the worst case the result is 0.58
// away from the exact value, nearly all of it by the final rounding; 0.94 where the width shrinks
// 100 times, by that of the many small weights. Pillow rounds after both passes, which leaves it
// within 1.01 of the exact value: the two differ by less than 2, so by 1 at most. All kernels
// (kernels.h) give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "resize/kernels.h"

namespace fastdata {

// One row of fastdata.crop.CropPlan and the output's size: the source region is resampled to the
// scaled size, and the output is a window of that, zero where it lies outside:
//     output[y][x] = scaled_region[cut_y + y][cut_x + x], mirrored afterwards if `flip` is set.
struct ResizePlan {
    int64_t source_width = 0;  // 1 to 65535
    int64_t source_height = 0;
    int64_t scaled_width = 0;  // 1 to 2**32
    int64_t scaled_height = 0;
    int64_t cut_x = 0;  // from -2**32 to 2**32
    int64_t cut_y = 0;
    int64_t out_width = 0;  // 1 to 65535
    int64_t out_height = 0;
    bool flip = false;
};

// Pixels x0 <= x < x1, y0 <= y < y1 of the source region.
struct SourceWindow {
    int x0 = 0;
    int y0 = 0;
    int x1 = 0;
    int y1 = 0;

    int width() const { return x1 - x0; }
    int height() const { return y1 - y0; }
};

// Buffers that one thread reuses from call to call; they grow to what the largest plan needs.
struct ResizeScratch {
    const ResizeKernels *kernels = &best_resize_kernels();
    FilterTaps vertical;
    FilterTaps horizontal;
    std::vector<int64_t> sums;            // of the weights of one output pixel, while they are made
    std::vector<const uint8_t *> rows;    // that one output row is made of
    std::vector<int16_t> row;             // one output row, before the horizontal pass
};

// The pixels of the source region that the output depends on; empty (all 0) where the output window
// lies outside of the scaled image. Throws std::invalid_argument for a plan out of range.
SourceWindow needed(const ResizePlan &plan);

// Writes out_height rows of out_width RGB pixels, `out_stride` bytes apart, and nothing in between.
// `window` holds the pixels of needed(plan) and no others, in rows `stride` bytes apart. Throws
// std::invalid_argument for a plan out of range.
void resize(const ResizePlan &plan, const uint8_t *window, ptrdiff_t stride, uint8_t *out,
            ptrdiff_t out_stride, ResizeScratch &scratch);

}  // namespace fastdata
