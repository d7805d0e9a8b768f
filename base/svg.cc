#include "base/svg.h"

#include <fmt/format.h>

#include <iterator>

namespace fairlead {
namespace {

// Of Okabe and Ito, darker on light ground.
constexpr std::array<std::string_view, kSvgInks> kLightInks = {"#0072b2", "#b34700", "#007a5a", "#a03f78",
                                                               "#7a6a00", "#2f7fb0", "#555555", "#8a1c1c"};
constexpr std::array<std::string_view, kSvgInks> kDarkInks = {"#56b4e9", "#ff9f4a", "#2fd3a5", "#e79bc4",
                                                              "#f0e442", "#9fd0ee", "#bbbbbb", "#ff8a8a"};

void add_inks(std::string* out, const std::array<std::string_view, kSvgInks>& inks) {
  for (std::size_t i = 0; i < inks.size(); ++i) fmt::format_to(std::back_inserter(*out), " --ink{}: {};", i, inks[i]);
}

}  // namespace

std::string svg_head(double width, double height, std::string_view title, const SvgStyle& style) {
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n"
      "<style>\nsvg {{ --ground: #ffffff; --ink: #1a1a1a; --frame: #767676; {3}\n",
      width, height, escape_xml(title), style.light);
  add_inks(&out, kLightInks);
  fmt::format_to(std::back_inserter(out),
                 " }}\n@media screen and (prefers-color-scheme: dark) {{\n"
                 "svg {{ --ground: #14171a; --ink: #e8e8e8; --frame: #8a8a8a; {}\n",
                 style.dark);
  add_inks(&out, kDarkInks);
  fmt::format_to(std::back_inserter(out),
                 " }} }}\n"
                 "text {{ font: 11px ui-monospace, 'DejaVu Sans Mono', monospace; fill: var(--ink); }}\n"
                 "rect {{ fill: none; stroke: var(--frame); }} .ground {{ fill: var(--ground); stroke: none; }}\n"
                 "{}</style>\n<rect class=\"ground\" width=\"{:.0f}\" height=\"{:.0f}\"/>\n",
                 style.rules, width, height);
  return out;
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

}  // namespace fairlead
