// Restart runs: the parts of a baseline JPEG that can be decoded without what comes before them.
//
// If the restart interval divides the MCUs of a row, a JPEG is a grid of runs, each one MCU high
// and `interval` MCUs wide. Any rectangle of runs becomes a JPEG of its own with other headers
// around it and its restart markers renumbered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/region.h"
#include "jpeg/layout.h"

namespace fastdata {

// Widens a box so that decoding it alone gives the pixels that the whole image has there: by one
// pixel on each side, which the upsampling of chroma looks at, and to at least 8 pixels, because
// libjpeg-turbo upsamples rows of 2 chroma samples or fewer in another way.
Box widen_for_upsampling(const JpegLayout &layout, const Box &box);

class RunIndex {
  public:
    // Finds the runs of the first `mcu_rows` rows by searching for their markers. False if the
    // image has no grid of runs, or its markers are not the expected ones.
    bool find(const JpegLayout &layout, const uint8_t *data, size_t size, int mcu_rows);

    int columns() const { return columns_; }
    int interval() const { return interval_; }

    // Run `column` of row `row` holds bytes [begin(row, column), end(row, column)).
    size_t begin(int row, int column) const { return starts_[at(row, column)]; }
    size_t end(int row, int column) const { return starts_[at(row, column) + 1] - 2; }

  private:
    size_t at(int row, int column) const { return static_cast<size_t>(row) * columns_ + column; }

    int columns_ = 0;
    int interval_ = 0;
    std::vector<uint32_t> starts_;  // one more than there are runs
};

struct SmallJpeg {
    std::vector<uint8_t> bytes;
    Box covers;  // which pixels of the image it holds
};

// Writes a JPEG of the runs that `box` touches; `runs` must have found the rows of `box`.
void build_small_jpeg(const JpegLayout &layout, const RunIndex &runs, const uint8_t *data,
                      const Box &box, SmallJpeg &small);

}  // namespace fastdata
