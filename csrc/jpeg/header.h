// What a JPEG says of itself before any pixel is decoded, and what it may ask for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "jpeg/error.h"

namespace fastdata {

// Limits come from fastdata/limits.py, which says why each has its value.
struct JpegLimits {
    int64_t max_pixels;
    int max_scans;
    int max_segments;
};

// The fields of JpegHeader in fastdata/jpeg_header.py, in its order, and three of our own.
struct JpegHeader {
    int width = 0;
    int height = 0;
    int components = 0;
    std::string sampling;
    bool progressive = false;
    bool arithmetic = false;
    int restart_interval = 0;
    int scans = 0;
    int strays = 0;      // places between segments with bytes that belong to none
    bool ends = false;   // in an end-of-image marker
    size_t end = 0;      // of that, or else of what is whole
};

// Walks the markers up to the end of the image, with the results and refusals of
// read_jpeg_header in fastdata/jpeg_header.py. Throws DecodeError.
JpegHeader read_jpeg_header(const uint8_t *data, size_t size, const JpegLimits &limits);

}  // namespace fastdata
