#include "jpeg/header.h"

#include <array>
#include <utility>

#include "jpeg/error.h"

namespace fastdata {
namespace {

std::string name_sampling(const JpegFrame &frame) {
    if (frame.components == 1) return "4:0:0";
    const auto &[luma, blue, red, black] = frame.component;
    const bool plain = red.h == blue.h && red.v == blue.v && luma.h % blue.h == 0 &&
                       luma.v % blue.v == 0;
    const bool black_as_luma =
        frame.components == 3 || (black.h == luma.h && black.v == luma.v);
    if (plain && black_as_luma) {
        static constexpr std::array<std::pair<int, const char *>, 7> names{{
            {11, "4:4:4"}, {21, "4:2:2"}, {22, "4:2:0"}, {12, "4:4:0"},
            {41, "4:1:1"}, {42, "4:1:0"}, {14, "4:4:1"},
        }};
        const int ratio = luma.h / blue.h * 10 + luma.v / blue.v;
        for (const auto &[key, name] : names) {
            if (key == ratio) return name;
        }
    }
    std::string factors;
    for (int i = 0; i < frame.components; ++i) {
        const JpegComponent &c = frame.component[i];
        factors += (i ? "," : "") + std::to_string(c.h) + "x" + std::to_string(c.v);
    }
    return factors;
}

}  // namespace

JpegHeader read_jpeg_header(const uint8_t *data, size_t size, const JpegLimits &limits) {
    SegmentReader segments(data, size, limits);
    JpegFrame frame;
    JpegHeader header;
    int restart_interval = 0;
    // Decoding a single Huffman-coded scan notices when data are missing, so an image of one needs
    // no end-of-image marker to prove that it is whole.
    bool one_scan = false;
    for (;;) {
        const Segment segment = segments.next();
        if (segment.marker == kCut && !one_scan) {
            fail("truncated JPEG: no end-of-image marker in its %zu bytes", size);
        }
        if (segment.marker == kCut || segment.marker == kEoi) {
            header.strays = segments.strays();
            header.ends = segment.marker == kEoi;
            header.end = header.ends ? segment.end : segment.begin;
            break;
        }
        if (segment.marker == kDri) {
            restart_interval = read_restart_interval(data, segment);
        } else if (is_frame(segment.marker)) {
            read_frame(data, segment, limits, frame);
        } else if (segment.marker == kSos) {
            const int components = read_scan_components(data, segment, frame);
            if (!header.scans++) {
                header.restart_interval = restart_interval;
                one_scan = frame.sequential() && components == frame.components;
            }
            if (header.scans > limits.max_scans) {
                fail("JPEG with more than %d scans, over the limit", limits.max_scans);
            }
            segments.skip_coded_data();
        }
    }
    if (!header.scans) fail("damaged JPEG: it ends before its first scan");
    header.width = frame.width;
    header.height = frame.height;
    header.components = frame.components;
    header.sampling = name_sampling(frame);
    header.progressive = frame.progressive;
    header.arithmetic = frame.arithmetic;
    return header;
}

}  // namespace fastdata
