// The same coefficients as a baseline JPEG with restart runs and Huffman tables of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/codec.h"
#include "jpeg/layout.h"

namespace fastdata {

enum class Transcoded {
    kDone,
    // Kept as it is, because ...
    kHasRuns,             // it is already a grid of runs of this width, and nothing is wrong with it
    kUnfinished,          // progressive, and some coefficients never came in full precision
    kCoefficientRange,    // baseline cannot code its coefficients
    kMcuTooLarge,         // more than 10 blocks would make an MCU
    kQuantisationTables,  // baseline's tables have 8 bits and stay the same through the image
};

// For example "progressive without its last refinement scan".
const char *describe(Transcoded outcome);

struct TranscodeResult {
    Transcoded outcome = Transcoded::kDone;
    std::vector<uint8_t> bytes;  // empty unless kDone
    bool warned = false;         // libjpeg warns of the source, though of no damage
    bool left_over = false;      // so it does because bytes are left over where coded data end
};

// The restart interval, in MCUs, with which an image gets runs of about `run_pixels`.
int choose_restart_interval(const JpegLayout &layout, int run_pixels);

// Codes the image anew; whatever decodes it gives the same pixels as before, and without a warning.
// JFIF (APP0), Adobe (APP14), EXIF and ICC segments are kept, because colours and orientation hang on
// them; comments, thumbnails, other APPn segments and bytes that belong to nothing are dropped.
// Throws DecodeError where the image, or any part of it, is damaged beyond what is tolerated.
TranscodeResult transcode(const uint8_t *data, size_t size, int run_pixels,
                          const JpegLimits &limits, Tolerated tolerated = Tolerated::kHarmless);

}  // namespace fastdata
