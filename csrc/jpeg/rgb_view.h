#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Pixels of a region; the memory belongs to the decoder and lasts until its next call.
struct RgbView {
    const uint8_t *pixels = nullptr;  // of the region's first pixel
    ptrdiff_t stride = 0;             // bytes from row to row
    int width = 0;
    int height = 0;
};

}  // namespace fastdata
