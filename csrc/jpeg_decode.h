// A region of a JPEG as RGB pixels, decoding no more of it than that takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "jpeg_runs.h"

namespace fastdata {

// Pixels of a region; the memory belongs to the decoder and lasts until its next call.
struct RgbView {
    const uint8_t *pixels = nullptr;  // of the region's first pixel
    ptrdiff_t stride = 0;             // bytes from row to row
    int width = 0;
    int height = 0;
};

// All ways give the same pixels; the slower ones are there to compare with.
enum class JpegWay {
    kFastest,    // our own Huffman decoding, which also leaves out the restart runs it can
    kSmallJpeg,  // libjpeg-turbo alone, on a JPEG of the runs that the region needs
    kPlain,      // libjpeg-turbo alone
};

// One thread's decoder. Its buffers are kept from call to call, libjpeg's state never is.
class JpegDecoder {
  public:
    explicit JpegDecoder(const JpegLimits &limits);
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder &) = delete;
    JpegDecoder &operator=(const JpegDecoder &) = delete;

    // The region's pixels as decoding the whole image with libjpeg-turbo's defaults (accurate
    // integer DCT, fancy upsampling) gives them, to the bit; gray as three equal values, CMYK as
    // Pillow converts it. What is damaged outside of the region may go unnoticed.
    // Throws DecodeError, also for a region that is empty or reaches out of the image.
    RgbView decode_region(const uint8_t *data, size_t size, const Box &region,
                          JpegWay way = JpegWay::kFastest);

    // A JPEG of the restart runs that the region needs, for other decoders; null where the image
    // has no such runs, or none that could be left out. It lasts until the decoder's next call.
    // Throws DecodeError as decode_region does, but reads no coded data.
    const SmallJpeg *cut(const uint8_t *data, size_t size, const Box &region);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fastdata
