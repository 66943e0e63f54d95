"""Files that travel with jobs (scripts, modules, archives), kept by their content.

keys           what a file is called: its digest, and a reference with the name under which a job sees it
store          BlobStore, the entry point: quotas, owners, uploads, downloads, copies for drivers, the collector
shelf          the directory below it, with the rules that make its steps safe against crashes and other processes
archive_check  whether a zip or a wheel is fit to be unpacked
"""
