// Our own decoder of baseline JPEGs: from coded bytes to the RGB pixels of a region, without
// libjpeg-turbo but with its pixels.
//
// It works on one row of MCUs at a time: the coefficients of the runs that the region needs, their
// samples, then the rows of pixels that these complete. All but the result stays in the nearest
// caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/region.h"
#include "jpeg/codec.h"
#include "jpeg/kernels.h"
#include "jpeg/layout.h"
#include "jpeg/scan.h"
#include "jpeg/streams.h"

namespace fastdata {

class BaselineDecoder {
  public:
    // Takes the tables of an image whose header `info` has read. False if libjpeg has to decode it:
    // for more than one scan, CMYK, sampling factors that do not divide each other, tables that are
    // missing or make no code, or more than 10 blocks an MCU.
    bool prepare(const jpeg_decompress_struct *info, const JpegLayout &layout);

    // Returns the region's pixels, once prepare() was true. Throws DecodeError if what it needs of
    // the image is damaged.
    RgbView decode(const JpegLayout &layout, const uint8_t *data, size_t size, const Box &region,
                   const JpegKernels &kernels);

  private:
    enum class Colours { kGray, kRgb, kYcc };

    // The samples of a component. The ring holds two rows of MCUs, because interpolating the last
    // row of pixels of one takes the first samples of the next.
    struct Plane {
        int h, v;                // blocks of an MCU across and down
        int expand_h, expand_v;  // pixels of a sample
        bool fancy;              // whether samples are interpolated rather than repeated
        int width, height;       // samples of the whole image
        uint16_t table[64];      // of quantisation, in natural order
        int first_column;        // of the samples in the ring
        int columns;             // number of columns in the ring
        int ring_rows;           // a power of two
        ptrdiff_t stride;
        std::vector<uint8_t> ring;
        std::vector<uint8_t> pixels;  // one row, upsampled

        uint8_t *row(int y) { return ring.data() + kMargin + (y & (ring_rows - 1)) * stride; }
    };
    static constexpr int kMargin = 32;  // bytes before each row, for the sample left of it

    struct McuPlace {
        int plane;
        int x, y;  // samples
    };

    // The MCUs that the region needs: columns first <= c < end, rows top <= r < end_row.
    struct Extent {
        int first, end;
        int top, end_row;
    };

    bool take_planes(const jpeg_decompress_struct *info, const JpegLayout &layout);
    Extent begin(const JpegLayout &layout, const uint8_t *data, size_t size, const Box &region);
    int64_t run_of(int64_t mcu) const { return mcu / interval_; }
    void read_row(const Extent &extent, int row);
    void add_part(const Extent &extent, int64_t start, int64_t run, int64_t to);
    void start_run(int64_t run, RunStream &stream);
    void transform_row(const Extent &extent, int row);
    void fill_edges(Plane &plane, int row);
    void emit_row(const Box &region, int y, uint8_t *out);
    const uint8_t *upsampled(Plane &plane, const Box &region, int y);

    const JpegKernels *kernels_ = nullptr;
    Colours colours_ = Colours::kGray;
    int planes_ = 0;
    Plane plane_[3];
    int across_ = 0;  // pixels that interpolation looks at left and right of the region
    int down_ = 0;    // and above and below it
    ScanCodes codes_;
    McuPlace mcu_place_[McuCodes::kMaxBlocks];  // of each block of an MCU

    CodedRuns coded_runs_;
    int64_t mcus_ = 0;
    int mcus_per_row_ = 0;
    int64_t interval_ = 0;   // MCUs of a run; all MCUs if there are no markers
    int64_t carried_ = -1;   // the run that continues from the row above, or -1
    RunStream carry_;
    std::vector<RunStream> streams_;  // of the runs that begin in this row
    size_t streams_used_ = 0;
    std::vector<StreamPart> parts_;
    std::vector<uint8_t> bytes_;      // of the runs, without stuffing
    size_t bytes_used_ = 0;
    std::vector<int16_t> coefficients_;  // of a row of MCUs, block after block
    std::vector<uint8_t> coded_;         // of each block, as in StreamPart
    size_t blocks_used_ = 0;
    std::vector<size_t> block_of_;  // the first block of each MCU column of the extent
    std::vector<uint8_t> pixels_;
};

}  // namespace fastdata
