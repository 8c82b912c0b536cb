#include "jpeg/layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "jpeg/error.h"

namespace fastdata {
namespace {

class LayoutReader {
  public:
    LayoutReader(const uint8_t *data, size_t size, const JpegLimits &limits, JpegLayout &layout)
        : data_(data), size_(size), limits_(limits), layout_(layout) {}

    void run() {
        SegmentReader segments(data_, size_, limits_);
        keep(0, 2);
        for (;;) {
            const Segment segment = segments.next();
            if (segment.marker == kCut) {
                fail("truncated JPEG: it ends in its headers, at byte %zu", size_);
            }
            if (segment.marker == kEoi) fail("damaged JPEG: it ends before its first scan");
            if (read(segment)) keep(segment.begin, segment.end);
            if (segment.marker != kSos) continue;
            layout_.coded = segment.end;
            return;
        }
    }

  private:
    // Merges adjacent segments, so that copying them takes one call.
    void keep(size_t begin, size_t end) {
        auto &needed = layout_.needed;
        if (!needed.empty() && needed.back().end == begin) {
            needed.back().end = end;
        } else {
            needed.push_back({begin, end});
        }
    }

    // Returns whether pixels depend on the segment.
    bool read(const Segment &segment) {
        switch (segment.marker) {
            case kDht: note_huffman(segment); return true;
            case kDac: return true;
            case kDqt: note_quantisation(segment); return true;
            case kDri:
                layout_.restart_interval = read_restart_interval(data_, segment);
                return true;
            case kSos: read_scan(segment); return true;
            case kApp0: return starts_with(segment, 14, "JFIF");
            case kApp14: return starts_with(segment, 12, "Adobe");
            default: break;
        }
        if (!is_frame(segment.marker)) return false;
        read_frame(data_, segment, limits_, layout_);
        layout_.size_field = segment.body + 1;
        // A scan of one component has one block an MCU, whatever its sampling factors.
        const bool single = layout_.components == 1;
        layout_.mcu_width = single ? 8 : 8 * layout_.max_h;
        layout_.mcu_height = single ? 8 : 8 * layout_.max_v;
        layout_.mcus_per_row = ceil_div(layout_.width, layout_.mcu_width);
        layout_.mcu_rows = ceil_div(layout_.height, layout_.mcu_height);
        return true;
    }

    bool starts_with(const Segment &segment, size_t bytes, const char *text) const {
        return segment.bytes() >= bytes && std::memcmp(data_ + segment.body, text, 5) == 0;
    }

    // These two only note which tables there are; libjpeg checks their contents.
    void note_huffman(const Segment &segment) {
        for (size_t at = segment.body; segment.end - at >= 17;) {
            const int index = data_[at];
            size_t symbols = 0;
            for (int i = 1; i <= 16; ++i) symbols += data_[at + i];
            if (index < 32) huffman_ |= 1u << index;
            at += 17 + std::min(symbols, segment.end - at - 17);
        }
    }

    void note_quantisation(const Segment &segment) {
        for (size_t at = segment.body; at < segment.end;) {
            const int index = data_[at] & 15;
            const size_t bytes = data_[at] >> 4 ? 129 : 65;
            quantisation_ |= 1u << index;
            at += std::min(bytes, segment.end - at);
        }
    }

    void read_scan(const Segment &segment) {
        const int count = read_scan_components(data_, segment, layout_);
        layout_.one_scan = layout_.sequential() && count == layout_.components;
        layout_.own_tables = layout_.one_scan;
        for (int i = 0; i < count; ++i) {
            const int tables = data_[segment.body + 2 + 2 * i];
            const uint32_t used = 1u << ((tables >> 4) & 15) | 1u << (16 + (tables & 15));
            const int scale = layout_.component[i].table;
            const bool scaled = scale < 4 && (quantisation_ >> scale & 1u);
            if ((huffman_ & used) != used || !scaled) layout_.own_tables = false;
        }
    }

    const uint8_t *data_;
    size_t size_;
    JpegLimits limits_;
    JpegLayout &layout_;
    uint32_t huffman_ = 0;       // DC tables in the low half, AC in the high half
    uint32_t quantisation_ = 0;
};

}  // namespace

void read_jpeg_layout(const uint8_t *data, size_t size, const JpegLimits &limits,
                      JpegLayout &layout) {
    std::vector<ByteRange> needed = std::move(layout.needed);
    needed.clear();
    layout = JpegLayout();
    layout.needed = std::move(needed);
    LayoutReader(data, size, limits, layout).run();
}

}  // namespace fastdata
