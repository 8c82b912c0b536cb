// Resamples uint8 RGB images (rows of interleaved pixels) with an antialiasing triangle filter.
//
// The filter is that of Pillow's `Image.resize(size, BILINEAR)` (src/libImaging/Resample.c), of
// torchvision's antialiased resize and of most training recipes: output pixel o looks at source
// position (o + 1/2) * source / scaled; a source pixel at distance d from it has weight max(0, 1 -
// d / support), support = max(1, source / scaled); weights are divided by their sum, and the filter
// ends at the edges of the source region.
//
// Here the weights are exact integer ratios, rounded to fixed point of at least 14 bits with the
// sum kept at exactly 1, so that a constant image stays constant. Rows are combined first, into one
// row of 16-bit values with 7 bits after the point; that row is filtered horizontally while it is
// in the nearest cache, and only the result is rounded to 8 bits. In the worst case the result is
// 0.58 away from the exact value, nearly all of it from the final rounding; 0.94 if the width
// shrinks 100 times, from rounding its many small weights. Pillow rounds after both passes, which
// leaves it within 1.01 of the exact value: the two differ by less than 2, so by 1 at most. All
// kernels (kernels.h) give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/region.h"
#include "resize/kernels.h"

namespace fastdata {

// One row of a CropPlan (fastdata's crop.py) and the output's size. The source region is resampled
// to the scaled size, and the output is a window of that, zero outside:
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

// Buffers that a thread reuses from call to call, and the kernels. They grow to what its largest
// plan needs.
struct ResizeScratch {
    const ResizeKernels *kernels = &best_resize_kernels();
    FilterTaps vertical;
    FilterTaps horizontal;
    std::vector<int64_t> sums;          // running sums of the weights of one output pixel
    std::vector<const uint8_t *> rows;  // source rows of one output row
    std::vector<int16_t> row;           // one output row, before the horizontal pass
};

// Returns which pixels of the source region the output depends on; none (all 0) if the output
// window lies outside the scaled image. Throws std::invalid_argument for a plan out of range.
Box source_window(const ResizePlan &plan);

// Writes out_height rows of out_width RGB pixels, `out_stride` bytes apart, and nothing in between.
// `window` holds the pixels of source_window(plan) and no others, in rows `stride` bytes apart.
// Throws std::invalid_argument for a plan out of range.
void resize(const ResizePlan &plan, const uint8_t *window, ptrdiff_t stride, uint8_t *out,
            ptrdiff_t out_stride, ResizeScratch &scratch);

}  // namespace fastdata
