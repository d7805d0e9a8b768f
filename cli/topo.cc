#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bench/base/file_output.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"
#include "cli/topo_json.h"
#include "fairlead/softroce.h"
#include "topology/graph_builder.h"
#include "topology/hwloc_reader.h"
#include "topology/interfaces.h"
#include "topology/plan.h"
#include "topology/render.h"

namespace fairlead::cli {
namespace {

using namespace topology;

struct Options {
  std::string xml, synthetic, svg, explain, peer;
  bool plan = false, json = false;
  BandwidthOverrides bandwidths;
};

Setter set_bandwidths(BandwidthOverrides* target) {
  return [target](std::string_view text) {
    Result<BandwidthOverrides> parsed = parse_bandwidths(text);
    if (!parsed) return parsed.error();
    *target = std::move(*parsed);
    return Status();
  };
}

std::string wrong_words(const Options& options) {
  if (!options.xml.empty() && !options.synthetic.empty()) return "--xml and --synthetic are two machines; give one";
  if (!options.explain.empty() && options.peer.empty())
    return "--explain MEMORY wants a PEER behind it, any name will do";
  if (options.explain.empty() && !options.peer.empty()) {
    return fmt::format("'{}' is one word too many, but behind --explain MEMORY", options.peer);
  }
  if (options.json && (options.plan || !options.explain.empty())) {
    return "--json holds the plan, too; it goes without --plan and --explain";
  }
  if (options.svg == "-" && (options.json || options.plan || !options.explain.empty())) {
    return "--svg - takes standard output for itself; give a file's name";
  }
  return {};
}

/// Where no address of this machine is a NIC's, the interfaces that have some are what engines send over; with the
/// softroce devices that are open on them.
void add_interfaces(Machine* machine) {
  const std::size_t nics = machine->devices.size();
  const std::vector<LocalAddress> addresses = local_addresses();
  std::set<std::string> interfaces;
  for (const LocalAddress& each : addresses) interfaces.insert(each.interface);
  static_cast<void>(nics_behind(interfaces, Unknown::kAddWhereNoNicIs, "", machine));
  if (machine->devices.size() == nics) return;
  for (const SoftroceDevice& soft : softroce_devices()) {
    const std::string all = ", " + soft.address + ",";
    for (const LocalAddress& each : addresses) {
      if (all.find(" " + each.address + ",") == std::string::npos) continue;
      for (const std::size_t nic : nics_named(*machine, &Device::net_devices, each.interface)) {
        std::vector<std::string>& names = machine->devices[nic].other_devices;
        if (std::find(names.begin(), names.end(), soft.name) == names.end()) names.push_back(soft.name);
      }
    }
  }
  std::vector<std::string> added;
  for (std::size_t i = nics; i < machine->devices.size(); ++i) added.push_back(machine->devices[i].name);
  machine->remarks.push_back(
      fmt::format("No address of this machine is a NIC's that hwloc sees: engines send over {}, "
                  "as if near everything.",
                  fmt::join(added, ", ")));
}

Result<Machine> read_machine(const Options& options) {
  if (!options.xml.empty()) return read_xml_file(options.xml);
  if (!options.synthetic.empty()) return read_synthetic(options.synthetic);
  Result<Machine> machine = read_this_machine();
  if (machine && machine->this_machine) add_interfaces(&*machine);
  return machine;
}

struct Plans {
  Plan explained, memories, gpus;
};

void print_plans(const Machine& machine, const Plans& plans) {
  fmt::print("{}", render_plan(machine, plans.memories, "Plan for memory, all NUMA nodes sending at once:"));
  if (!plans.gpus.placements.empty()) {
    fmt::print("\n{}", render_plan(machine, plans.gpus, "Plan for GPUs, all sending at once:"));
  }
}

/// Of the plans that were shown: the explained one's, and with --plan the others'.
void print_remarks(const Plans& plans, bool all) {
  const std::array shown = {&plans.explained, &plans.memories, &plans.gpus};
  const std::size_t count = !all ? 1 : plans.gpus.placements.empty() ? 2 : 3;
  fmt::print("{}", render_remarks(std::span(shown).first(count)));
}

}  // namespace

int topo_command(Words words) {
  Options options;
  Args args("topo", "Shows what a machine is made of, how wide the ways through it are, and where data should go.",
            "Examples:\n  fairlead topo                        this machine, as a tree\n"
            "  fairlead topo --plan                 NICs, cores and NUMA nodes for each memory and GPU, with reasons\n"
            "  fairlead topo --explain gpu0 peer    why these NICs, and why not the others\n"
            "  fairlead topo --xml dgx.xml --plan --svg dgx.svg\n"
            "                                       another machine, written there by lstopo dgx.xml\n"
            "  fairlead topo --plan --bandwidth mlx5_0=12.5,socket=20\n"
            "                                       with figures (GB/s) for what is assumed or known better");
  args.flag("--plan", &options.plan, "Show where data of each memory and each GPU should go, and why");
  args.option("--explain", "MEMORY", "Explain the placement of one memory or GPU (numa0, gpu0), sending alone to PEER",
              set_text(&options.explain));
  args.positional("PEER", "What --explain calls the peer; every peer is reached over every NIC",
                  set_text(&options.peer), false);
  args.flag_by_itself("--json", &options.json, "Write machine, graph and plans to standard output as JSON, instead");
  args.option("--svg", "FILE", "Write a drawing of the machine with the plan in it; - for standard output",
              set_text(&options.svg));
  args.option("--xml", "FILE", "The machine of this XML of hwloc's (lstopo FILE.xml) instead of this one",
              set_text(&options.xml));
  args.option("--synthetic", "STRING",
              "A machine as hwloc describes it, such as 'package:2 core:8 pu:2'; it has no NICs",
              set_text(&options.synthetic));
  args.option("--bandwidth", "NAME=GB/s,...",
              "Bandwidth of a NIC, a PCI address, numa0, or of every memory, socket, pcie, nic that is not known",
              set_bandwidths(&options.bandwidths));
  args.rule([&options] { return wrong_words(options); });
  if (const auto exit = args.parse(words)) return *exit;

  Console console("topo", options.json || options.svg == "-");
  const auto fail = [&console](const Status& status) {
    console.error(status);
    return kFailure;
  };
  const Result<Machine> machine = read_machine(options);
  if (!machine) return fail(machine.error());
  const BandwidthTable table(options.bandwidths);
  if (const Status status = table.check(*machine); !status.ok()) return fail(status);
  const MachineGraph made = build_graph(*machine, table);

  Plans plans;
  if (!options.explain.empty()) {
    const Result<Endpoint> endpoint = find_endpoint(*machine, options.explain);
    if (!endpoint) return fail(endpoint.error());
    const std::vector<Pair> pairs = {{*endpoint, options.peer}};
    plans.explained = make_plan(*machine, made, pairs);
    fmt::print("{}", render_explanation(*machine, made, plans.explained.placements.front()));
  }
  if (!options.json && !options.plan && options.svg.empty()) {
    if (options.explain.empty()) fmt::print("{}", render_tree(*machine, made));
    print_remarks(plans, false);
    return kSuccess;
  }
  plans.memories = make_plan(*machine, made, memory_pairs(*machine, "peer"));
  plans.gpus = make_plan(*machine, made, gpu_pairs(*machine, "peer"));
  if (!options.svg.empty()) {
    const std::array both = {&plans.gpus, &plans.memories};
    const std::size_t first = plans.gpus.placements.empty() ? 1 : 0;
    const Status written = bench::write_text(options.svg, render_svg(*machine, made, std::span(both).subspan(first)));
    if (!written.ok()) return fail(written);
  }
  if (options.json) {
    fmt::print("{}\n", topo_to_json(*machine, made, {&plans.memories, &plans.gpus}).dump(2));
  } else {
    if (options.plan) print_plans(*machine, plans);
    print_remarks(plans, options.plan);
  }
  return kSuccess;
}

}  // namespace fairlead::cli
