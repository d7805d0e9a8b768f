// What people look at: a machine and its plan as text and as a picture. Threads: functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph_builder.h"
#include "topology/machine.h"
#include "topology/plan.h"

namespace fairlead::topology {

/// The machine as a tree, with the bandwidth of each link; ends with a line feed. What is assumed says so.
[[nodiscard]] std::string render_tree(const Machine& machine, const MachineGraph& made);
/// A paragraph per placement; ends with a line feed. `title` heads it. What the plan remarks is not in it.
[[nodiscard]] std::string render_plan(const Machine& machine, const Plan& plan, const std::string& title);
/// What these plans remark, each sentence once; they hold the words.
[[nodiscard]] std::vector<std::string_view> remarks_of(std::span<const Plan* const> plans);
/// The same, each on a line of its own.
[[nodiscard]] std::string render_remarks(std::span<const Plan* const> plans);
/// One placement with every way, step by step, and why each other NIC was passed over.
[[nodiscard]] std::string render_explanation(const Machine& machine, const MachineGraph& made,
                                             const Placement& placement);
/// A drawing of the machine with one or two plans in it, as one SVG document: dark on light or light on dark as the
/// viewer prefers, dark on light on paper. Every name is escaped. Lines show what sends over which NIC, those of the
/// second plan dashed; figures stand in words, too, so that nothing depends on a colour. Its parts are arranged so that
/// it comes out as large as it can on a page of A4, upright or across.
[[nodiscard]] std::string render_svg(const Machine& machine, const MachineGraph& made,
                                     std::span<const Plan* const> plans);

}  // namespace fairlead::topology
