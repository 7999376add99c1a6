// The plot of `vesta bench`: one panel for decode and one for prefill, tokens per second from zero, context on a
// logarithmic axis. Few lines, direct labels, the spread as a thin bar.
#include <algorithm>
#include <cmath>

#include "bench_report.h"

namespace vesta::app {
namespace {

constexpr double kWidth = 760, kPanel = 230, kLeft = 64, kRight = 28, kTop = 64, kGap = 62, kBottom = 44;
constexpr const char* kInk = "#1b1f24";
constexpr const char* kFaint = "#8b949e";
constexpr const char* kGrid = "#e7eaee";
constexpr const char* kLine = "#0b62c4";

std::string xml(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '&')
            out += "&amp;";
        else if (c == '"')
            out += "&quot;";
        else if (static_cast<unsigned char>(c) >= 32)
            out += c;
    }
    return out;
}

// 1, 2 or 5 times a power of ten, so that `top` takes 3 to 6 steps.
double nice_step(double top) {
    const double power = std::pow(10.0, std::floor(std::log10(top / 4)));
    for (const double m : {1.0, 2.0, 5.0})
        if (top / (m * power) <= 6) return m * power;
    return 10 * power;
}

std::string short_number(double v) {
    if (v >= 1024 && std::fmod(v, 1024) == 0) return strf("{:.0f}k", v / 1024);
    return strf("{}", v);
}

struct Point {
    double context;
    Spread rate;
};

class Panel {
 public:
    Panel(std::string& out, double top, double low, double high, double most)
        : out_(out),
          top_(top),
          low_(std::log2(low)),
          high_(std::log2(high)),
          step_(nice_step(most)),
          most_(std::ceil(most * 1.02 / step_) * step_) {}

    void frame(const std::string& title) {
        text(kLeft, top_ - 12, "start", kInk, 13, title);
        for (double v = 0; v <= most_ * 1.001; v += step_) {
            line(kLeft, y(v), kWidth - kRight, y(v), v == 0 ? kFaint : kGrid, 1);
            text(kLeft - 8, y(v) + 4, "end", kFaint, 11, short_number(std::round(v * 1e6) / 1e6));
        }
        for (double k = std::ceil(low_); k <= std::floor(high_) + 1e-9; ++k)
            text(x(std::exp2(k)), top_ + kPanel + 18, "middle", kFaint, 11, short_number(std::exp2(k)));
    }
    void series(const std::vector<Point>& points, const char* colour, bool labels) {
        std::string path;
        for (const Point& p : points)
            path += strf("{}{:.1f},{:.1f}", path.empty() ? "M" : " L", x(p.context), y(p.rate.median));
        if (points.size() > 1)
            out_ += strf("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n",
                         path, colour);
        for (const Point& p : points) {
            if (p.rate.max > p.rate.min) line(x(p.context), y(p.rate.min), x(p.context), y(p.rate.max), colour, 1.5);
            out_ += strf("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x(p.context),
                         y(p.rate.median), colour);
            if (labels)
                text(x(p.context), y(p.rate.max) - 8, "middle", kInk, 11,
                     strf("{:.{}f}", p.rate.median, p.rate.median < 100 ? 1 : 0));
        }
    }

 private:
    double x(double context) const {
        const double span = high_ - low_;
        return kLeft + 24 + (kWidth - kLeft - kRight - 48) * (span > 0 ? (std::log2(context) - low_) / span : 0.5);
    }
    double y(double rate) const { return top_ + kPanel * (1 - rate / most_); }
    void line(double x1, double y1, double x2, double y2, const char* colour, double width) {
        out_ +=
            strf("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
                 x1, y1, x2, y2, colour, width);
    }
    void text(double px, double py, const char* anchor, const char* colour, int size, const std::string& what) {
        out_ += strf("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\" font-size=\"{}\">{}</text>\n", px,
                     py, anchor, colour, size, xml(what));
    }

    std::string& out_;
    double top_, low_, high_, step_, most_;
};

std::vector<Point> points_of(const BenchReport& b, bool decode) {
    std::vector<Point> out;
    for (const BenchRow& r : b.rows)
        if ((r.kind == BenchKind::decode) == decode && r.context > 0)
            if (decode || r.kind == BenchKind::prefill) out.push_back({static_cast<double>(r.context), r.rate});
    if (!decode && out.empty())  // increments, when no prompt from nothing was measured
        for (const BenchRow& r : b.rows)
            if (r.kind == BenchKind::increment) out.push_back({static_cast<double>(r.context), r.rate});
    std::sort(out.begin(), out.end(), [](const Point& a, const Point& c) { return a.context < c.context; });
    return out;
}

}  // namespace

std::string bench_svg(const BenchReport& b, const Baseline* baseline) {
    std::string body;
    double top = kTop;
    for (const bool decode : {true, false}) {
        const std::vector<Point> points = points_of(b, decode);
        if (points.empty()) continue;
        std::vector<Point> other;
        if (baseline != nullptr)
            for (const auto& [key, rate] : *baseline)
                if (key.first == (decode ? "decode" : "prefill") && key.second > 0 && rate > 0)
                    other.push_back({static_cast<double>(key.second), {rate, rate, rate}});
        double low = points[0].context, high = low, most = 1e-3;
        const std::vector<Point>* const lists[] = {&points, &other};
        for (const auto* list : lists)
            for (const Point& p : *list) {
                low = std::min(low, p.context), high = std::max(high, p.context), most = std::max(most, p.rate.max);
            }
        Panel panel(body, top, low, high, most);
        panel.frame(decode ? "decode, tokens/s over context" : "prefill, tokens/s over prompt length");
        panel.series(other, kFaint, false);
        panel.series(points, kLine, true);
        top += kPanel + kGap;
    }
    const double height = top - kGap + kBottom;
    std::string out = strf(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" font-family=\"system-ui, sans-serif\">\n",
        kWidth, height);
    out += strf("<title>{}</title>\n<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#ffffff\"/>\n", xml(b.model),
                kWidth, height);
    out += strf("<text x=\"{:.0f}\" y=\"26\" fill=\"{}\" font-size=\"15\">{}</text>\n", kLeft, kInk, xml(b.model));
    out += strf(
        "<text x=\"{:.0f}\" y=\"26\" text-anchor=\"end\" fill=\"{}\" font-size=\"11\">{} threads, {}, cache "
        "{}</text>\n",
        kWidth - kRight, kFaint, b.n_thread, b.n_thread == 1 ? "" : "s", xml(b.backend), xml(b.cache),
        baseline != nullptr ? "; grey: compared with" : "");
    return out + body + "</svg>\n";
}

}  // namespace vesta::app
