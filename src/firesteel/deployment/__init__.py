"""From a command to a cluster: which kind of cluster a configuration asks for, and how one is found, started and ended.

effective               the configuration of a command, with what is needed to start a process that has the same
descriptors             the protocols: ClusterClientFactory, ClusterDescriptor; ClusterSpecification, ClusterClientProvider
loader                  ClusterClientServiceLoader: the one factory for `execution.target`
application_deployer    ApplicationDeployer: a program to a cluster of its own, whatever the target
local                   the target `local`: the cluster of this machine, which wakes up
standalone              the target `remote`: a cluster that somebody else has started
standalone_application  the target `standalone-application`: a cluster on this machine for one application
local_nodes             starting processes of nodes on this machine
"""
