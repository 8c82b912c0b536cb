// Where a JPEG keeps what its first scan needs: its frame, its tables, its coded data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg/segments.h"

namespace fastdata {

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct ByteRange {
    size_t begin;
    size_t end;
};

struct JpegLayout : JpegFrame {
    bool one_scan = false;     // the first scan is sequential and holds every component
    bool own_tables = false;   // and every table that it uses is defined before it
    int restart_interval = 0;  // MCUs, 0 for none
    int mcu_width = 0;         // pixels
    int mcu_height = 0;
    int mcus_per_row = 0;
    int mcu_rows = 0;
    size_t size_field = 0;     // offset of the frame's height, which its width follows
    size_t coded = 0;          // offset of the first scan's entropy-coded data
    std::vector<ByteRange> needed;  // segments before that on which the pixels depend
};

// Reads the segments up to the first scan's data into `layout`, whose memory it reuses. Throws
// DecodeError for what read_jpeg_header refuses in them.
void read_jpeg_layout(const uint8_t *data, size_t size, const JpegLimits &limits,
                      JpegLayout &layout);

}  // namespace fastdata
