#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/index_list.h"
#include "base/printable.h"
#include "base/svg.h"
#include "topology/render.h"
#include "topology/svg_layout.h"

namespace fairlead::topology {
namespace {

constexpr SvgStyle kStyle = {
    .light = "--memory: #e6f2e6; --nic: #fdf0d5; --gpu: #e4ecf8;",
    .dark = "--memory: #1f3322; --nic: #3a2f14; --gpu: #1d2b42;",
    .rules =
        ".memory { fill: var(--memory); } .nic { fill: var(--nic); } .gpu { fill: var(--gpu); }\n"
        ".way { fill: none; stroke-opacity: 0.7; stroke-linecap: round; } .dashed { stroke-dasharray: 6 6; }\n"};

class Drawing {
 public:
  Drawing(const Machine& machine, const MachineGraph& made, std::span<const Plan* const> plans)
      : machine_(machine), made_(made), plans_(plans) {}

  std::string draw() {
    const Legend legend(legend_lines());
    const Block root = arrange(machine_block(), legend);
    const Size size = size_of(root, legend);
    out_ = svg_head(size.width, size.height, printable(machine_.name) + ": placement", kStyle);
    draw_block(root);
    for (std::size_t i = 0; i < plans_.size(); ++i) draw_plan(*plans_[i], is_second(i));
    const double top = root.y + root.height + kGap;
    legend.lay_out(size.width - 2 * kGap,
                   [&](double x, double y, const std::string& line) { text(root.x + x, top + y, line); });
    out_ += words_ + "</svg>\n";  // above the lines
    return std::move(out_);
  }

 private:
  Block machine_block() {
    Block root{.style = "machine", .lines = {printable(machine_.name)}};
    for (std::size_t i = 0; i < machine_.packages.size(); ++i) root.children.push_back(package_block(i));
    Block shared{.style = "package", .lines = {"of no one socket, or nobody says of which"}};
    const auto is_shared = [this](const auto& part) { return packages_of(machine_, part.cores).size() != 1; };
    add_parts(is_shared, &shared);
    if (!shared.children.empty()) root.children.push_back(std::move(shared));
    return root;
  }

  Block package_block(std::size_t index) {
    const Package& package = machine_.packages[index];
    Block block{.style = "package",
                .lines = {fmt::format("{}  {}", name_of(package), printable(package.model))},
                .node = made_.packages[index]};
    std::vector<unsigned> pus;
    std::size_t cores = 0;
    for (const Core& core : machine_.cores) {
      if (core.package != index) continue;
      ++cores;
      pus.insert(pus.end(), core.pus.begin(), core.pus.end());
    }
    block.lines.push_back(fmt::format("{} cores, PUs {}", cores, to_index_list(pus)));
    add_parts([this, index](const auto& part) { return packages_of(machine_, part.cores) == std::vector{index}; },
              &block);
    return block;
  }

  template <typename Belongs>
  void add_parts(Belongs belongs, Block* block) {
    for (std::size_t i = 0; i < machine_.memories.size(); ++i) {
      const Memory& memory = machine_.memories[i];
      if (!belongs(memory)) continue;
      block->children.push_back({.style = "memory",
                                 .lines = {name_of(memory), to_binary_size(memory.bytes), edge_of(made_.memories[i])},
                                 .node = made_.memories[i]});
    }
    for (std::size_t i = 0; i < machine_.bridges.size(); ++i) {
      if (machine_.bridges[i].parent || !belongs(machine_.bridges[i])) continue;
      if (std::optional<Block> bridge = bridge_block(i)) block->children.push_back(std::move(*bridge));
    }
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      if (!machine_.devices[i].bridge && made_.devices[i] && belongs(machine_.devices[i])) {
        block->children.push_back(device_block(i));
      }
    }
  }

  // nullopt: nothing that the graph knows hangs on it.
  std::optional<Block> bridge_block(std::size_t index) {
    const Bridge& bridge = machine_.bridges[index];
    Block block{.style = "bridge", .lines = {}, .node = made_.bridges[index]};
    block.lines.push_back(bridge.parent ? fmt::format("{}  {}", bridge.bus_id, edge_of(made_.bridges[index]))
                                        : "host bridge " + bridge.bus_id);
    for (std::size_t i = index + 1; i < machine_.bridges.size(); ++i) {
      if (machine_.bridges[i].parent != index) continue;
      if (std::optional<Block> child = bridge_block(i)) block.children.push_back(std::move(*child));
    }
    for (std::size_t i = 0; i < machine_.devices.size(); ++i) {
      if (machine_.devices[i].bridge == index && made_.devices[i]) block.children.push_back(device_block(i));
    }
    if (block.children.empty()) return std::nullopt;
    // A port with one thing behind it says nothing that its own box does not.
    if (block.children.size() == 1 && bridge.parent) return Block(std::move(block.children.front()));
    return block;
  }

  Block device_block(std::size_t index) {
    const Device& device = machine_.devices[index];
    Block block{.style = device.kind == DeviceKind::kNic ? "nic" : "gpu",
                .lines = {printable(device.name), device.bus_id, edge_of(*made_.devices[index])},
                .node = made_.devices[index]};
    if (device.kind == DeviceKind::kNvSwitch) block.style = "bridge";
    for (const Plan* plan : plans_) {
      for (const Placement& placement : plan->placements) {
        for (const NicUse& nic : placement.nics) {
          if (nic.device != index) continue;
          block.lines.push_back(fmt::format("{} {}{}", name_of(machine_, placement.pair.endpoint),
                                            nic.assumed ? "~" : "", to_gigabytes_per_second(nic.rate)));
          if (nic.lane.core) block.lines.back() += fmt::format(", PU {}", nic.lane.pu);
        }
      }
    }
    return block;
  }

  // The bandwidth of the edge upward.
  std::string edge_of(std::size_t node) const {
    for (const std::size_t at : made_.graph.edges_at(node)) {
      const Edge& edge = made_.graph.edges()[at];
      if (edge.kind == EdgeKind::kPort || edge.kind == EdgeKind::kNvLink) continue;
      if (edge.kind == EdgeKind::kPci && edge.to != node) continue;
      return (edge.forward.origin == Origin::kAssumed ? "~" : "") +
             to_gigabytes_per_second(edge.forward.bytes_per_second);
    }
    return {};
  }

  std::vector<std::string> legend_lines() const {
    std::vector<std::string> lines = {
        "A line: who sends over which NIC, the thicker the more. ~: a bandwidth that is "
        "assumed. PU: where the lane runs."};
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      const std::vector<Placement>& placements = plans_[i]->placements;
      if (plans_.size() > 1 && !placements.empty()) {
        lines.push_back(fmt::format("{} lines: {} sending at once:", is_second(i) ? "Dashed" : "Solid",
                                    placements.front().pair.endpoint.gpu ? "GPUs, all" : "memory, all NUMA nodes"));
      }
      for (const Placement& placement : plans_[i]->placements) {
        std::string line =
            fmt::format("{} -> {}: {}{}", name_of(machine_, placement.pair.endpoint), printable(placement.pair.peer),
                        is_assumed(placement) ? "~" : "", to_gigabytes_per_second(placement.rate));
        if (placement.pool) line += ", pool in " + name_of(machine_.memories[*placement.pool]);
        lines.push_back(std::move(line));
      }
    }
    for (const Edge& edge : made_.graph.edges()) {
      if (edge.kind == EdgeKind::kSocket) lines.push_back(edge.name + ": " + to_string(edge.forward));
    }
    for (const std::string_view remark : remarks_of(plans_)) lines.emplace_back(remark);
    return lines;
  }

  void text(double x, double y, const std::string& words) {
    fmt::format_to(std::back_inserter(words_), "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", x, y, escape_xml(words));
  }

  void draw_block(const Block& block) {
    fmt::format_to(std::back_inserter(out_),
                   "<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"3\"/>\n",
                   block.style, block.x, block.y, block.width, block.height);
    double y = block.y;
    for (const std::string& line : block.lines) text(block.x + kPadding, y += kLine, line);
    if (block.node) drawn_[*block.node] = {block.x, block.y, block.width, block.height};
    for (const Block& child : block.children) draw_block(child);
  }

  /// Of two plans, that which is drawn beside the first.
  static bool is_second(std::size_t plan) { return plan > 0; }

  void draw_plan(const Plan& plan, bool dashed) {
    double most = 0;
    for (const Placement& placement : plan.placements) {
      for (const NicUse& nic : placement.nics) most = std::max(most, nic.rate);
    }
    for (std::size_t i = 0; i < plan.placements.size(); ++i) {
      const Endpoint endpoint = plan.placements[i].pair.endpoint;
      const auto from = drawn_.find(endpoint.gpu ? *made_.devices[endpoint.index] : made_.memories[endpoint.index]);
      for (const NicUse& nic : plan.placements[i].nics) {
        const auto to = drawn_.find(*made_.devices[nic.device]);
        if (from == drawn_.end() || to == drawn_.end()) continue;
        way(from->second, to->second, i, 1 + (dashed ? 2 : 4) * nic.rate / most, dashed);
      }
    }
  }

  struct Area {
    double x, y, width, height;
  };

  // Between the edges that face each other; bowed below both where they stand side by side. So it crosses few words.
  void way(const Area& from, const Area& to, std::size_t placement, double thickness, bool dashed) {
    const double spread = 5 * (static_cast<double>(placement % 4) - 1.5);
    const bool up = to.y + to.height <= from.y, down = from.y + from.height <= to.y;
    const double x1 = from.x + from.width / 2, y1 = up ? from.y : from.y + from.height;
    const double x2 = to.x + to.width / 2 + spread, y2 = down ? to.y : to.y + to.height;
    const double middle = up || down ? (y1 + y2) / 2 : std::max(y1, y2) + kGap + spread / 2;
    fmt::format_to(
        std::back_inserter(out_),
        "<path class=\"way{}\" stroke=\"var(--ink{})\" stroke-width=\"{:.1f}\" d=\"M{:.0f} {:.0f} C{:.0f} {:.0f} "
        "{:.0f} {:.0f} {:.0f} {:.0f}\"/>\n",
        dashed ? " dashed" : "", placement % kSvgInks, thickness, x1, y1, x1, middle, x2, middle, x2, y2);
  }

  const Machine& machine_;
  const MachineGraph& made_;
  const std::span<const Plan* const> plans_;
  std::string out_, words_;
  std::map<std::size_t, Area> drawn_;  // by node of the graph
};

}  // namespace

std::string render_svg(const Machine& machine, const MachineGraph& made, std::span<const Plan* const> plans) {
  return Drawing(machine, made, plans).draw();
}

}  // namespace fairlead::topology
