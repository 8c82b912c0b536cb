// Restart runs: the parts of a baseline JPEG that can be decoded without what comes before them.
//
// Where the restart interval divides the MCUs of a row, a JPEG is a grid of runs, each one MCU
// high and `interval` MCUs wide. Any rectangle of runs becomes a JPEG of its own by writing other
// headers around it and numbering the restart markers again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/layout.h"

namespace fastdata {

// Pixels x0 <= x < x1, y0 <= y < y1.
struct Box {
    int x0 = 0;
    int y0 = 0;
    int x1 = 0;
    int y1 = 0;
};

// The box, as wide as decoding it alone needs so that its pixels are those of the whole image:
// by one pixel on each side, which upsampled chroma looks across, and to 8 pixels, because
// libjpeg-turbo upsamples chroma of 2 samples a row or fewer in another way.
Box widen_for_upsampling(const JpegLayout &layout, const Box &box);

class RunIndex {
  public:
    // Finds the runs of the first `mcu_rows` rows by scanning for their markers. False where the
    // image has no grid of runs or its markers are not the ones expected.
    bool find(const JpegLayout &layout, const uint8_t *data, size_t size, int mcu_rows);

    int columns() const { return columns_; }
    int interval() const { return interval_; }

    // Run `column` of row `row` holds bytes [begin(row, column), end(row, column)).
    size_t begin(int row, int column) const { return starts_[at(row, column)]; }
    size_t end(int row, int column) const { return starts_[at(row, column) + 1] - 2; }

  private:
    size_t at(int row, int column) const { return size_t(row) * columns_ + column; }

    int columns_ = 0;
    int interval_ = 0;
    std::vector<uint32_t> starts_;  // one more than there are runs
};

struct SmallJpeg {
    std::vector<uint8_t> bytes;
    Box covers;  // the pixels of the image that it holds
};

// Writes the JPEG of the runs that `box` touches, whose rows `runs` must have found.
void build_small_jpeg(const JpegLayout &layout, const RunIndex &runs, const uint8_t *data,
                      const Box &box, SmallJpeg &small);

}  // namespace fastdata
