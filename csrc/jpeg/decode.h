// Decodes a region of a JPEG to RGB pixels, and no more of the file than that takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/region.h"
#include "jpeg/error.h"
#include "jpeg/runs.h"

namespace fastdata {

// All ways give the same pixels; the slower ones exist to compare with. For absurd coefficients,
// our decoder gives on every processor what libjpeg-turbo gives on x86.
enum class JpegWay {
    kFastest,    // our own decoder if it can, else kSmallJpeg
    kPortable,   // the same with portable kernels
    kSmallJpeg,  // libjpeg-turbo, on a JPEG of only those runs that the region needs
    kPlain,      // libjpeg-turbo on the whole image
};

// One thread's decoder. It keeps its buffers from call to call, and Huffman tables, which it
// compares before it uses them again. It never keeps libjpeg's state, which outlives errors (see
// codec.h).
class JpegDecoder {
  public:
    explicit JpegDecoder(const JpegLimits &limits);
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder &) = delete;
    JpegDecoder &operator=(const JpegDecoder &) = delete;

    // Returns the same pixels, to the bit, as decoding the whole image with libjpeg-turbo's
    // defaults (accurate integer DCT, fancy upsampling); gray as three equal values, CMYK as Pillow
    // converts it. Damage outside the region may go unnoticed. Throws DecodeError, also if the
    // region is empty or reaches beyond the image, or if the image has another size than the one
    // stated.
    RgbView decode_region(const uint8_t *data, size_t size, const Box &region,
                          JpegWay way = JpegWay::kFastest, const ImageSize &stated = {});

    // Frees its buffers.
    void free();

    // Returns a JPEG of the restart runs that the region needs, for other decoders; null if the
    // image has no such runs, or none that could be left out. Valid until the decoder's next call.
    // Throws DecodeError as decode_region does, but does not look at coded data.
    const SmallJpeg *cut(const uint8_t *data, size_t size, const Box &region);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fastdata
