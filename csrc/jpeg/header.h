// What a JPEG says about itself before any pixel is decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "jpeg/segments.h"

namespace fastdata {

// The fields of JpegHeader in fastdata's jpeg_header.py, in its order, and three of our own.
struct JpegHeader {
    int width = 0;
    int height = 0;
    int components = 0;
    std::string sampling;
    bool progressive = false;
    bool arithmetic = false;
    int restart_interval = 0;
    int scans = 0;
    int strays = 0;     // gaps between segments that hold bytes
    bool ends = false;  // with an end-of-image marker
    size_t end = 0;     // of that marker, or of the last whole segment
};

// Reads all segments up to the end of the image, with the results and refusals of read_jpeg_header
// in jpeg_header.py. Throws DecodeError.
JpegHeader read_jpeg_header(const uint8_t *data, size_t size, const JpegLimits &limits);

}  // namespace fastdata
