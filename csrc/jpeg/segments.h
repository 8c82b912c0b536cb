// A JPEG's marker segments one after the other, and the checks of frame and scan headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/header.h"

namespace fastdata {

enum Marker : int {
    kCut = -1,  // none: the bytes end, or the segment reaches beyond them
    kTem = 0x01,
    kDht = 0xC4,
    kDac = 0xCC,
    kRst0 = 0xD0,
    kRst7 = 0xD7,
    kSoi = 0xD8,
    kEoi = 0xD9,
    kSos = 0xDA,
    kDqt = 0xDB,
    kDnl = 0xDC,
    kDri = 0xDD,
    kApp0 = 0xE0,
    kApp14 = 0xEE,
    kApp15 = 0xEF,
    kCom = 0xFE,
};

struct Segment {
    int marker = kCut;
    size_t begin = 0;  // of the marker's 0xff
    size_t body = 0;   // past the length
    size_t end = 0;

    size_t bytes() const { return end - body; }
};

// Finds segments as libjpeg does: bytes that belong to none are passed, and so are markers that
// stand alone. What libjpeg reads past without an error is no error here.
class SegmentReader {
  public:
    // Throws DecodeError where the bytes do not begin as a JPEG.
    SegmentReader(const uint8_t *data, size_t size, const JpegLimits &limits);

    // The next segment, or kEoi or kCut. Throws DecodeError for more segments than there may be,
    // and for one that no decoder knows or whose length makes no sense.
    Segment next();

    // After a scan's header: passes its coded data.
    void pass_coded_data();

    // How many times bytes were passed that belong to nothing.
    int strays() const { return strays_; }

  private:
    int next_marker();

    const uint8_t *data_;
    size_t size_;
    JpegLimits limits_;
    size_t at_ = 2;
    int markers_ = 0;
    int strays_ = 0;
};

struct JpegComponent {
    int id = 0;
    int h = 0;
    int v = 0;
    int table = 0;  // of quantisation
};

struct JpegFrame {
    int width = 0;
    int height = 0;
    int components = 0;  // 0 where there was no frame header yet
    JpegComponent component[4];
    int max_h = 1;  // of the components' factors
    int max_v = 1;
    bool progressive = false;
    bool arithmetic = false;

    bool sequential() const { return !progressive && !arithmetic; }
};

bool is_frame(int marker);

// Reads a frame header into `frame`, which must be the first. Throws DecodeError.
void read_frame(const uint8_t *data, const Segment &segment, const JpegLimits &limits,
                JpegFrame &frame);

// How many components a scan has. Throws DecodeError.
int read_scan_components(const uint8_t *data, const Segment &segment, const JpegFrame &frame);

int read_restart_interval(const uint8_t *data, const Segment &segment);

}  // namespace fastdata
