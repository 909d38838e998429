// Branches: where they go, and where lanes that took different ways meet again.
//
// Lanes meet at the immediate post-dominator: the first instruction that lies on every way from the branch to the end
// of the kernel (S. Muchnick, Advanced Compiler Design and Implementation, 1997, section 7.3). Ways that end in a trap
// do not count. The dominators are found by the algorithm of K. Cooper, T. Harvey, K. Kennedy: A Simple, Fast Dominance
// Algorithm, Rice University, 2001, on the reversed graph.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/control.h"
#include "kernels/cuda/software_gpu/handlers.h"

namespace halfmark::kernels::software_gpu {
namespace {

// Basic blocks of a kernel; the last one is the end, which every ret leads to.
struct Graph {
  std::vector<int32_t> first;                  // instruction of each block
  std::vector<std::vector<int>> next, before;  // of each block
  std::vector<int> block_of;                   // of each instruction
  int end = 0;
};

Graph graph_of(const Kernel& kernel) {
  const auto& code = kernel.code;
  const auto count = static_cast<int32_t>(code.size());
  std::vector<bool> starts(code.size() + 1, false);
  starts[0] = true;
  for (int32_t i = 0; i < count; ++i) {
    if (code[static_cast<size_t>(i)].target != kNoPlace)
      starts[static_cast<size_t>(code[static_cast<size_t>(i)].target)] = true;
    if (code[static_cast<size_t>(i)].target != kNoPlace || ends(code[static_cast<size_t>(i)]))
      starts[static_cast<size_t>(i) + 1] = true;
  }
  Graph graph;
  graph.block_of.resize(code.size());
  for (int32_t i = 0; i < count; ++i) {
    if (starts[static_cast<size_t>(i)]) graph.first.push_back(i);
    graph.block_of[static_cast<size_t>(i)] = static_cast<int>(graph.first.size()) - 1;
  }
  graph.end = static_cast<int>(graph.first.size());
  graph.next.resize(graph.first.size() + 1);
  graph.before.resize(graph.first.size() + 1);
  const auto connect = [&](int from, int to) {
    graph.next[static_cast<size_t>(from)].push_back(to);
    graph.before[static_cast<size_t>(to)].push_back(from);
  };
  for (int block = 0; block < graph.end; ++block) {
    const int32_t after = block + 1 < graph.end ? graph.first[static_cast<size_t>(block) + 1] : count;
    const Instruction& last = code[static_cast<size_t>(after) - 1];
    const bool always = last.guard == kNoRegister;
    if (is_trap(last) && always) continue;
    if (is_return(last)) connect(block, graph.end);
    if (last.target != kNoPlace) connect(block, graph.block_of[static_cast<size_t>(last.target)]);
    const bool falls_through = !((last.target != kNoPlace || is_return(last)) && always);
    if (falls_through) connect(block, block + 1 < graph.end ? block + 1 : graph.end);
  }
  return graph;
}

// The immediate post-dominator of each block; -1 if no way leads from it to the end.
std::vector<int> post_dominators(const Graph& graph) {
  // Reverse post-order of the reversed graph, from the end.
  std::vector<int> order, number(graph.next.size(), -1);
  std::vector<std::pair<int, size_t>> stack{{graph.end, 0}};
  std::vector<bool> visited(graph.next.size(), false);
  visited[static_cast<size_t>(graph.end)] = true;
  while (!stack.empty()) {
    auto& [block, at] = stack.back();
    const auto& before = graph.before[static_cast<size_t>(block)];
    if (at < before.size()) {
      const int other = before[at++];
      if (!visited[static_cast<size_t>(other)])
        visited[static_cast<size_t>(other)] = true, stack.emplace_back(other, 0);
    } else {
      order.push_back(block);
      stack.pop_back();
    }
  }
  for (size_t i = 0; i < order.size(); ++i) number[static_cast<size_t>(order[i])] = static_cast<int>(i);
  std::reverse(order.begin(), order.end());
  std::vector<int> dominator(graph.next.size(), -1);
  dominator[static_cast<size_t>(graph.end)] = graph.end;
  for (bool changed = true; changed;) {
    changed = false;
    for (const int block : order) {
      if (block == graph.end) continue;
      int found = -1;
      for (int other : graph.next[static_cast<size_t>(block)]) {
        if (dominator[static_cast<size_t>(other)] < 0) continue;
        if (found < 0) {
          found = other;
          continue;
        }
        int mine = found;
        while (mine != other) {
          while (number[static_cast<size_t>(mine)] < number[static_cast<size_t>(other)])
            mine = dominator[static_cast<size_t>(mine)];
          while (number[static_cast<size_t>(other)] < number[static_cast<size_t>(mine)])
            other = dominator[static_cast<size_t>(other)];
        }
        found = mine;
      }
      if (found != dominator[static_cast<size_t>(block)]) dominator[static_cast<size_t>(block)] = found, changed = true;
    }
  }
  return dominator;
}

}  // namespace

void resolve_branches(Coder& coder, const std::vector<std::pair<size_t, std::string_view>>& branches,
                      const std::unordered_map<std::string_view, int32_t>& labels) {
  Kernel& kernel = coder.kernel();
  for (const auto& [at, label] : branches) {
    const auto found = labels.find(label);
    coder.line = kernel.code[at].line;
    if (found == labels.end()) coder.fail("no label " + std::string(label));
    Instruction& branch = kernel.code[at];
    // A branch to a return is one: its lanes do not wait for others, as lanes of a GPU do not.
    const Instruction& there = kernel.code[static_cast<size_t>(found->second)];
    if (is_return(there) && there.guard == kNoRegister)
      branch.run = there.run;
    else
      branch.target = found->second;
  }
  if (branches.empty()) return;
  const Graph graph = graph_of(kernel);
  const std::vector<int> dominator = post_dominators(graph);
  for (const auto& [at, label] : branches) {
    if (kernel.code[at].target == kNoPlace) continue;
    const int block = dominator[static_cast<size_t>(graph.block_of[at])];
    kernel.code[at].reconverge = block < 0 || block == graph.end ? kNoPlace : graph.first[static_cast<size_t>(block)];
  }
}

}  // namespace halfmark::kernels::software_gpu
