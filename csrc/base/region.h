// Regions of images, and their pixels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

struct ImageSize {
    int64_t width = 0;  // both 0 if unknown
    int64_t height = 0;
};

// Pixels x0 <= x < x1, y0 <= y < y1.
struct Box {
    int x0 = 0;
    int y0 = 0;
    int x1 = 0;
    int y1 = 0;

    int width() const { return x1 - x0; }
    int height() const { return y1 - y0; }
};

// The RGB pixels of a region. The memory belongs to the decoder and is valid until its next call.
struct RgbView {
    const uint8_t *pixels = nullptr;  // the region's first
    ptrdiff_t stride = 0;             // bytes from row to row
    int width = 0;
    int height = 0;
};

}  // namespace fastdata
