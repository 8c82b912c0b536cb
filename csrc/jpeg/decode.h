// A region of a JPEG as RGB pixels, decoding no more of it than that takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "jpeg/runs.h"
#include "jpeg/rgb_view.h"

namespace fastdata {

// All ways give the same pixels; the slower ones are there to compare with. Where coefficients are
// absurd, ours gives on every processor what libjpeg-turbo gives on x86.
enum class JpegWay {
    kFastest,    // our own decoder where it can, else kSmallJpeg
    kPortable,   // the same with the kernels of any processor
    kSmallJpeg,  // libjpeg-turbo, on a JPEG of the runs that the region needs
    kPlain,      // libjpeg-turbo on the whole image
};

struct ImageSize {
    int64_t width = 0;  // both 0 where it is not known
    int64_t height = 0;
};

// One thread's decoder. Its buffers are kept from call to call, and so are Huffman tables, which are
// compared before they serve again; libjpeg's state never is.
class JpegDecoder {
  public:
    explicit JpegDecoder(const JpegLimits &limits);
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder &) = delete;
    JpegDecoder &operator=(const JpegDecoder &) = delete;

    // The region's pixels as decoding the whole image with libjpeg-turbo's defaults (accurate
    // integer DCT, fancy upsampling) gives them, to the bit; gray as three equal values, CMYK as
    // Pillow converts it. What is damaged outside of the region may go unnoticed.
    // Throws DecodeError, also for a region that is empty or reaches out of the image, and for an
    // image of another size than the one stated.
    RgbView decode_region(const uint8_t *data, size_t size, const Box &region,
                          JpegWay way = JpegWay::kFastest, const ImageSize &stated = {});

    // Gives the memory of its buffers back.
    void free();

    // A JPEG of the restart runs that the region needs, for other decoders; null where the image
    // has no such runs, or none that could be left out. It lasts until the decoder's next call.
    // Throws DecodeError as decode_region does, but reads no coded data.
    const SmallJpeg *cut(const uint8_t *data, size_t size, const Box &region);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fastdata
