// Re-encodes a JPEG as baseline, with the same coefficients, restart runs and its own Huffman
// tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/codec.h"
#include "jpeg/layout.h"
#include "jpeg/segments.h"

namespace fastdata {

enum class Transcoded {
    kDone,
    // The image is kept as it is, because ...
    kHasRuns,             // it already is a grid of runs of this width, and all is well with it
    kUnfinished,          // it is progressive, and lacks the full precision of some coefficients
    kCoefficientRange,    // baseline has no codes for its coefficients
    kMcuTooLarge,         // an MCU would have more than 10 blocks
    kQuantisationTables,  // baseline's tables have 8 bits, and one serves the whole image
};

// For example "progressive without its last refinement scan".
const char *describe(Transcoded outcome);

struct TranscodeResult {
    Transcoded outcome = Transcoded::kDone;
    std::vector<uint8_t> bytes;  // empty unless kDone
    bool warned = false;         // libjpeg warns about the source, but not of damage
    bool left_over = false;      // there are bytes left over where coded data end
};

// Returns the restart interval, in MCUs, that gives an image runs of about `run_pixels`.
int choose_restart_interval(const JpegLayout &layout, int run_pixels);

// Re-encodes the image. Every decoder gives the same pixels as before, and without a warning. JFIF
// (APP0), Adobe (APP14), EXIF and ICC segments are kept, because colours and orientation depend on
// them; comments, thumbnails, other APPn segments and stray bytes are dropped. Throws DecodeError
// if any part of the image is damaged beyond what is tolerated.
TranscodeResult transcode(const uint8_t *data, size_t size, int run_pixels,
                          const JpegLimits &limits, Tolerated tolerated = Tolerated::kHarmless);

}  // namespace fastdata
