// The marker segments of a JPEG, one after another, and the checks of its frame and scan headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Set by fastdata's Python side, which says why each has its value.
struct JpegLimits {
    int64_t max_pixels;
    int max_scans;
    int max_segments;
};

inline bool operator==(const JpegLimits &a, const JpegLimits &b) {
    return a.max_pixels == b.max_pixels && a.max_scans == b.max_scans &&
           a.max_segments == b.max_segments;
}

enum Marker : int {
    kCut = -1,  // no marker: the bytes end here, or in the middle of the segment
    kTem = 0x01,
    kSof0 = 0xC0,
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

// Finds segments as libjpeg does: it skips bytes that belong to none, and markers that stand alone.
// What libjpeg reads past without an error is no error here, since such files are in use.
class SegmentReader {
  public:
    // Throws DecodeError if the bytes do not begin as a JPEG.
    SegmentReader(const uint8_t *data, size_t size, const JpegLimits &limits);

    // The next segment, or kEoi or kCut. Throws DecodeError for more segments than the limit, and
    // for one that no decoder knows or whose length makes no sense.
    Segment next();

    // Call after a scan's header: skips its coded data.
    void skip_coded_data();

    // How often bytes were skipped that belong to nothing.
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
    int components = 0;  // 0 until a frame header was read
    JpegComponent component[4];
    int max_h = 1;  // of the components' factors
    int max_v = 1;
    bool progressive = false;
    bool arithmetic = false;

    bool sequential() const { return !progressive && !arithmetic; }
};

bool is_frame(int marker);

// Reads a frame header into `frame`, which must not hold one yet. Throws DecodeError.
void read_frame(const uint8_t *data, const Segment &segment, const JpegLimits &limits,
                JpegFrame &frame);

// Returns a scan's number of components. Throws DecodeError.
int read_scan_components(const uint8_t *data, const Segment &segment, const JpegFrame &frame);

int read_restart_interval(const uint8_t *data, const Segment &segment);

}  // namespace fastdata
